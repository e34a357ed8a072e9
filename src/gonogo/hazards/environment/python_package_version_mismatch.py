from gonogo.evidence.environment.compatibility import known_bugs_of_release, requirements_of_release
from gonogo.evidence.environment.version_range import parse_specifier, parse_version
from gonogo.evidence.failure.api_mismatch import (
    CALL_MISMATCH_FORMS,
    ApiMismatch,
    api_mismatch_of_error,
    trainer_config_class,
)
from gonogo.evidence.failure.message import parse_message
from gonogo.evidence.library import is_library_path
from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.match import collapse_whitespace
from gonogo.hazards.environment._model_names import MODEL_CLASS_PATTERN
from gonogo.hazards.environment._moved_names import (
    moved_name_certainty,
    release_mismatch_certainty,
    release_mismatch_line,
)
from gonogo.hazards.environment._surroundings import find_line_or_error, is_outside_training, truncated_tracebacks
from gonogo.hazards.facts.installed import (
    certainty_of_package_versions,
    come_from_one_source,
    known_bad_version_findings,
)
from gonogo.hazards.facts.training_framework import uses_trainer
from gonogo.hazards.rule import Certainty, Environment, Finding, Findings, Hazard, Pattern, Run, Text, translated
from gonogo.hazards.version_rule import package_pair_finding, requirements_of_package

_PACKAGE_NAMES_PATTERN = (
    r"(?:transformers|peft|accelerate|trl|diffusers|huggingface_hub|tokenizers|datasets|bitsandbytes|optimum"
    r"|auto_gptq|gptqmodel"
    r"|safetensors|torchao|torchvision|torch|numpy|numpy\.core|pydantic|swift|unsloth\w*|liger_kernel|evaluate|triton"
    r"|vllm|sglang|verl|megatron|apex|flash_attn|ray|openrlhf|llamafactory|tensordict|compressed_tensors|lightning)"
)
_IMPORT_NAME_PATTERN = Pattern(
    rf"cannot import name '(\w+)'? from '({_PACKAGE_NAMES_PATTERN}(?:\.[\w.]+)?)'"
    rf"|No module named '({_PACKAGE_NAMES_PATTERN})\.[\w.]+'"
)
_INSTALLED_PACKAGE_PATTERN = Pattern(r"cannot import name '\w+' from '[\w.]+' \(\S*(?:site|dist)-packages/")
"""An installed package that lacks the imported name."""
_MISSING_ATTRIBUTE_PATTERN = Pattern(
    r"'[A-Z]\w{3,80}' object has no attribute '[a-z_]\w*'|module '[\w.]+' has no attribute '\w+'"
)
_PATCHING_FRAMEWORKS = ("unsloth", "vllm/", "sglang/", "verl/", "trl/", "peft/", "megatron/", "swift/", "llamafactory/")
_BASE_PACKAGE_PATTERN = Pattern(r"(?:from|named) '(?:torch|numpy|pydantic|swift|triton|evaluate)\b")
_KNOWN_MISMATCH_PATTERN = Pattern(
    r"cannot import name '(?:EncoderDecoderCache|HybridCache|top_k_top_p_filtering|is_torch_tpu_available"
    r"|AutoModelForCausalLMWithValueHead|AutoModelForVision2Seq|MODEL_FOR_VISION_2_SEQ_MAPPING(?:_NAMES)?|SpecialTokensMixin"
    r"|AutoModelWithLMHead|SinkCache|SlidingWindowCache|OffloadedCache|BeamSearchScorer|TRANSFORMERS_CACHE"
    r"|DataLoaderConfiguration|clear_device_cache|split_torch_state_dict_into_shards|cached_download|ShardedDDPOption)'"
    r"|is required for a normal functioning of this module, but found"
    r"|Accelerator\.__init__\(\) got an unexpected keyword argument"
    r"|(?:\w*Trainer|\w+Config|\w*TrainingArguments)\.__init__\(\) got an unexpected keyword argument "
    r"'(?:tokenizer|processing_class|max_seq_length|max_prompt_length|dataset_text_field|dataset_kwargs|model_init_kwargs"
    r"|evaluation_strategy|eval_strategy|evaluate_during_training|include_num_input_tokens_seen|use_mps_device"
    r"|neftune_noise_alpha|peft_config|use_dora|eva_config|corda_config|exclude_modules|lora_bias)'"
    r"|(?:compute_loss|forward)\(\) got an unexpected keyword argument 'num_items"
    r"|unwrap_model\(\) got an unexpected keyword argument|'(?:AdamW|Adam|SGD|Adafactor"
    r"|AcceleratedOptimizer)' object has no attribute 'train'"
    r"|name '(?:ParallelismConfig|init_empty_weights|PartialState)' is not defined"
    r"|numpy\.(?:dtype|ufunc) size changed, may indicate binary incompatibility"
    r"|numpy\.core\.multiarray failed to import"
    r"|requires? (?:the )?(?:latest version of )?`?(?:peft|accelerate|bitsandbytes|transformers|trl|deepspeed"
    r"|torch)`? ?(?:>=|==|<)"
    r"|data did not match any variant of untagged enum (?:ModelWrapper|PyPreTokenizerTypeWrapper|PyDecoderWrapper)"
    r"|Descriptors cannot (?:not )?be created directly"
    r"|VersionConflict|Please install (?:peft|accelerate|bitsandbytes|transformers"
    r"|trl)\S* ?(?:>=|==)"
)
_REQUIRED_BY_PATTERN = Pattern(r"is required by ([A-Za-z][\w.-]{0,60}\w)")
_SHARED_LIBRARY_PATTERN = Pattern(r"cannot open shared object file|undefined symbol|DLL load failed")
_NO_MODULE_PATTERN = Pattern(r"No module named '\w+'")
_IMPORT_PATTERN = Pattern(
    r"^\s*(?:from (?:\.|transformers|peft|accelerate|trl|diffusers|huggingface_hub|tokenizers)\S* import"
    r"|import (?:transformers|peft|accelerate|trl|diffusers)\b)"
)
_SIGNATURE_MISMATCH_PATTERN = Pattern(r"\w+\(\) (?:got an unexpected keyword argument|takes (?:from )?\d+)")
_KNOWN_SIGNATURE_PATTERN = Pattern(
    r"compute_loss\(\) got an unexpected keyword argument 'num_items|unwrap_model\(\) got an unexpect"
    r"ed keyword argument"
    r"|Accelerator\.__init__\(\) got an unexpected keyword argument '(?:use_seedable_sampler|dispatch_batches"
    r"|even_batches|split_batches|dataloader_config|logging_dir)'"
)
"""Arguments that one library's own code passes to another, with a name that is valid in some release."""
_DDP_ATTRIBUTE_PATTERN = Pattern(r"'\w*(?:DistributedDataParallel|DataParallel)' object has no attribute '_[a-z]\w+'")
_KNOWN_KEYWORD_PATTERN = Pattern(
    r"argument '(?:tokenizer|processing_class|max_seq_length|max_prompt_length|dataset_text_field|dataset_kwargs"
    r"|model_init_kwargs|evaluation_strategy|eval_strategy|evaluate_during_training|include_num_input_tokens_seen"
    r"|use_mps_device|neftune_noise_alpha|peft_config|use_dora|eva_config|corda_config|exclude_modules|lora_bias"
    r"|num_items_in_batch|dispatch_batches|even_batches|use_seedable_sampler|dataloader_config|logging_dir|kwargs_handlers"
    r"|project_config|gradient_accumulation_plugin|deepspeed_plugins|keep_torch_compile|prediction_loss_only"
    r"|gradient_checkpointing_kwargs|accelerator_config|lr_scheduler_kwargs|include_for_metrics|eval_on_start"
    r"|batch_eval_metrics|average_tokens_across_devices|optim_target_modules|sharded_ddp|half_precision_backend"
    r"|fsdp_transformer_layer_cls_to_wrap|overwrite_output_dir|save_safetensors|ref_model_init_kwargs)'"
)
_UNEXPECTED_KEYWORD_PATTERN = Pattern(r"\(\) got an unexpected keyword argument")
_WRAPPER_KEYWORD_PATTERN = Pattern(
    r"(?:FullyShardedDataParallel|DistributedDataParallel|DeepSpeedEngine|\bInit)\.__init__\(\) got an unexpected "
    r"keyword"
)
_CALLBACK_PATTERN = Pattern(r"\bon_\w+\(\)|forward\(\)|collat\w*\(\)|compute_metrics\(\)")
_CONFIG_KEYWORD_PATTERN = Pattern(
    r"\w*(?:TrainingArguments|Trainer|Config|Accelerator)\.__init__\(\) got an unexpected keyword argument"
)
_ATTRIBUTE_ERROR_PATTERN = Pattern(
    rf"module '{_PACKAGE_NAMES_PATTERN}[\w.]*' has no attribute|'(?:Accelerator|AcceleratorState|PartialState"
    rf"|GenerationConfig|TrainingArguments"
    r"|DynamicCache|PeftModel\w*|LoraConfig|\w*Trainer|AdamW|Linear4bit|Linear8bitLt|MatmulLtState|Params4bit|Int8Params"
    r"|QuantState|BitsAndBytesConfig|(?:SFT|DPO|GRPO|RLOO|PPO|KTO|ORPO|CPO|GKD|Reward)Config)' object has no attribute"
)
_WRONG_OBJECT_PATTERN = Pattern(r"object has no attribute '(?:get|items|keys|append|mean)'")
"""The program passes a wrong object: a dict, a list or a tensor was expected."""
_PLUGIN_ATTRIBUTE_PATTERN = Pattern(
    r"'(?:FullyShardedDataParallelPlugin|DeepSpeedPlugin|MegatronLMPlugin|TorchDynamoPlugin|ProjectConfiguration"
    r"|DataLoaderConfiguration|GradientAccumulationPlugin)' object has no attribute"
)
"""accelerate's settings, which transformers and training programs read by the names of their release."""
_WRAPPER_PATTERN = Pattern(
    r"\b(?:FSDP|FullyShardedDataParallel|fully_shard|DDP|DistributedDataParallel|MixedPrecision|deepspeed\.zero\.Init"
    r"|zero\.Init|deepspeed\.initialize|init_device_mesh|DeviceMesh)\("
)
"""Calls of torch or DeepSpeed by a training framework, with keywords of the release it was written for."""
_GLOB_PATTERN = Pattern(r"Invalid pattern: '\*\*' can only be an entire path component")
_GLOB_CURE = (
    translated("pip install -U datasets (2.15 or newer), or keep it and use fsspec==2023.9.2"),
    translated("If your own data_files has such a pattern: use data/**/*.json instead of data/**.json"),
)


class PythonPackageVersionMismatch(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Requirements of one package on another, from its own metadata, that the installed version does not meet."""
        for requesting in _REQUIRING_PACKAGES:
            for row in requirements_of_package(environment, requesting):
                for name, specifier in row.requires.items():
                    if name in _EXCLUDED_DEPENDENCIES.get(requesting, ()) or not come_from_one_source(
                        environment, requesting, name
                    ):
                        continue
                    if environment.within(name, specifier) is not False:
                        continue
                    if (requesting, name) == ("transformers", "peft") and not environment.within("transformers", ">=5"):
                        continue  # before 5 it is checked only in load_adapter
                    raises = requesting == "transformers" and name in _CHECKED_AT_IMPORT
                    sure = (
                        certainty_of_package_versions(environment, run, requesting, name)
                        if raises
                        else Certainty.LIKELY
                    )
                    if (requesting, name) == ("transformers", "peft"):
                        sure = Certainty.POSSIBLE  # checked only if transformers itself loads or adds an adapter
                    effect = self.texts["import_fails"] if raises else self.texts["pair_rejected"]
                    yield package_pair_finding(self, environment, (requesting, name, specifier), effect, sure)
        shows = ("import",) if uses_trainer(run) is False else ("import", "trainer")
        for package in ("peft", "accelerate"):
            rows = [row for when in shows for row in known_bugs_of_release(package) if row.when == when]
            yield from known_bad_version_findings(self, rows, environment, run)

    def in_log(self, log: FailureLog) -> Findings:
        """A name or argument that one package lacks in another; more certain if a library's own frame raised it."""
        outside = is_outside_training(log)
        for error in log.errors:
            certainty = _judge_certainty(error)
            if certainty is not None:
                yield self._build_finding(log, error, Certainty.POSSIBLE if outside else certainty)
        if (mismatch := release_mismatch_line(log)) is not None:
            yield self.log_finding(mismatch, certainty=Certainty.POSSIBLE, confirm=_CONFIRM)
        if line := log.find(_KNOWN_MISMATCH_PATTERN) or log.find(_IMPORT_NAME_PATTERN):
            keyword = "unexpected keyword argument" in line.text and _KNOWN_KEYWORD_PATTERN.search(line.text) is None
            sure = _KNOWN_MISMATCH_PATTERN.search(line.text) is not None and not keyword and not outside
            certainty = Certainty.LIKELY if sure else Certainty.POSSIBLE
            if not (keyword and any(error.innermost is not None for error in log.errors_of("TypeError"))):
                yield self.log_finding(line, certainty=certainty, confirm=_CONFIRM)
        if glob := find_line_or_error(log, _GLOB_PATTERN):
            yield self.log_finding(glob, cure=_GLOB_CURE, certainty=Certainty.LIKELY, confirm=_CONFIRM)
        if cut := next(
            (error for error, code in truncated_tracebacks(log) if _is_cut_in_library_import(error, code)), None
        ):
            yield self._build_finding(log, cut, Certainty.POSSIBLE if outside else Certainty.LIKELY)
        if (evidence := find_line_or_error(log, self.patterns["wrapped"])) and not _is_package_missing(log):
            wrapped = next((error for error in log.errors if self.patterns["wrapped"].search(error.flat_message)), None)
            explained = self._explain_packages(log, wrapped) if wrapped is not None else None
            cause, cure = explained if explained is not None else (self.texts["cause"], self.cures)
            yield self.log_finding(
                evidence,
                cause,
                cure=cure,
                certainty=Certainty.POSSIBLE
                if outside or find_line_or_error(log, _SHARED_LIBRARY_PATTERN)
                else Certainty.LIKELY,
                confirm=_CONFIRM,
            )

    def _build_finding(self, log: FailureLog, error: LoggedError, certainty: Certainty) -> Finding:
        explained = self._explain_packages(log, error)
        cause, cure = explained if explained is not None else (self.texts["cause"], self.cures)
        return self.log_finding(error, cause, cure=cure, certainty=certainty, confirm=_CONFIRM)

    def _explain_packages(self, log: FailureLog, error: LoggedError) -> tuple[Text, tuple[Text, ...]] | None:
        """Cause and cures that name exactly the two packages; None if the log does not show which they are."""
        versions = log.setup.version_texts
        for package in parse_message(error.type, error.message).packages:
            if package.required:
                there = package.version or versions.get(package.name, "")
                by = _REQUIRED_BY_PATTERN.search(error.flat_message)
                requiring = by.group(1) if by is not None else ""
                return (
                    Text(
                        "{asks} requires {name}{required}{there}."
                        if requiring
                        else "{name}{required} is required{there}.",
                        "{asks} 要求 {name}{required}{there}。" if requiring else "需要 {name}{required}{there}。",
                    ).format(
                        asks=requiring,
                        name=package.name,
                        required=package.required,
                        there=Text(f", and {there} is installed", f"，而安装的是 {there}") if there else "",
                    ),
                    (
                        Text(
                            f"pip install '{package.name}{package.required}', or a release of what asks for it that "
                            f"takes {package.name} {there or 'as it is'}",
                            f"pip install '{package.name}{package.required}'，或换用接受 {package.name} "
                            f"{there or '现有版本'} 的请求方版本",
                        ),
                    ),
                )
        misfit = api_mismatch_of_error(error, versions)
        if misfit is None or misfit.form == "undefined_symbol":
            return None
        if not misfit.lacks or misfit.lacks == misfit.asks or not (misfit.asks or misfit.by_user):
            return self._explain_known_side(misfit)
        lacks, requiring = (f"{name} {version}".strip() for name, version in (misfit[1:3], misfit[3:5]))
        name = misfit.names[0] if misfit.names else misfit.subject
        fits = _required_versions(misfit.asks, misfit.asks_version, misfit.lacks)
        other = misfit.asks or translated("your own code")
        met = _meets_requirement(misfit.lacks_version, fits)
        if not misfit.asks and misfit.form in CALL_MISMATCH_FORMS:
            return self._cause_of_user_call(misfit, lacks)
        return (
            translated("{asks} needs {what}, which {lacks} does not have: the two releases don't match{fits}.").format(
                asks=requiring or other,
                what=Text(f"{name} of {misfit.subject}", f"{misfit.subject} 的 {name}")
                if misfit.names
                else Text(f"the module {name}", f"模块 {name}"),
                lacks=lacks,
                fits=Text(f"; {requiring} requires {misfit.lacks}{fits}", f"；{requiring} 要求 {misfit.lacks}{fits}")
                if fits and not met
                else "",
            ),
            (
                Text(f"pip install '{misfit.lacks}{fits}'", f"pip install '{misfit.lacks}{fits}'")
                if fits and not met
                else self.texts["update_lacking_cure"].format(lacks=misfit.lacks, asks=other, there=lacks)
                if fits
                else self.texts["matching_pair_cure"].format(lacks=misfit.lacks, asks=other, there=lacks),
            ),
        )

    def _explain_known_side(self, misfit: ApiMismatch) -> tuple[Text, tuple[Text, ...]] | None:
        """Cause and cures if the log shows only one of the two packages, or one with files of different releases."""
        name = misfit.names[0] if misfit.names and misfit.form != "argument_count" else ""
        subject = misfit.subject.partition(".")[0] if misfit.form in CALL_MISMATCH_FORMS else misfit.subject
        if not subject or subject.startswith("__"):
            return None
        own = misfit.at.package if misfit.at is not None else ""
        if misfit.asks and misfit.asks not in (misfit.lacks, "torch"):
            return (
                translated("{asks} {does}, which does not match this version of {subject}.").format(
                    asks=f"{misfit.asks} {misfit.asks_version}".strip(),
                    does=_describe_use(misfit, name),
                    subject=subject,
                ),
                (
                    self.texts["other_release_or_package_cure"].format(
                        subject=subject,
                        package=misfit.asks,
                        which=translated(" (a model's config: transformers)")
                        if misfit.form == "no_attribute" and subject.endswith("Config")
                        else Text("", ""),
                    ),
                ),
            )
        if not misfit.lacks or misfit.by_user:
            return None
        lacks = f"{misfit.lacks} {misfit.lacks_version}".strip()
        if own == misfit.lacks:
            return (
                translated("{lacks} itself {does}: its files come from different releases.").format(
                    lacks=lacks, does=_describe_use(misfit, name)
                ),
                (self.texts["other_release_cure"].format(package=misfit.lacks, subject=subject),),
            )
        return (
            translated(
                "{lacks} does not match the code that {does}: that code was written for another release."
            ).format(lacks=lacks, does=_describe_use(misfit, name)),
            (self.texts["matching_release_cure"].format(lacks=misfit.lacks, name=name or misfit.subject),),
        )

    def _cause_of_user_call(self, api_mismatch: ApiMismatch, package_release: str) -> tuple[Text, tuple[Text, ...]]:
        """Cause and cures if the user's own line uses arguments of another release of the package."""
        listed = ", ".join(api_mismatch.names)
        cures = [
            self.texts["cure"].format(lacks=package_release, subject=api_mismatch.subject, package=api_mismatch.lacks)
        ]
        if config := trainer_config_class(api_mismatch.subject):
            cures.insert(0, self.texts["move_to_config_cure"].format(names=listed, config=config))
        return translated("Your code calls {subject} with {names}, which {lacks} does not accept.").format(
            subject=api_mismatch.subject, names=listed, lacks=package_release
        ), tuple(cures)


def _meets_requirement(version: str, specifier: str) -> bool:
    """Whether an installed version meets a stated requirement."""
    there, allowed = parse_version(version), parse_specifier(specifier) if specifier else None
    return there is not None and allowed is not None and allowed.contains(there) is True


def _describe_use(misfit: ApiMismatch, name: str) -> Text:
    """What the calling code does with a name: ``reads llm of GRPOTrainer``."""
    if misfit.form in ("unexpected_keyword", "missing_arguments"):
        verb = translated("passes {name} to {subject}")
        if misfit.form == "missing_arguments":
            verb = translated("leaves {name} out in a call of {subject}")
        return verb.format(name=name, subject=misfit.subject)
    if misfit.form == "argument_count":
        return translated("calls {subject} with {count} arguments").format(
            subject=misfit.subject, count=misfit.names[-1]
        )
    if misfit.form == "not_importable":
        return translated("imports {name} from {subject}").format(name=name, subject=misfit.subject)
    if misfit.form == "no_module":
        return translated("imports {subject}").format(subject=misfit.subject)
    return translated("reads {name} of {subject}").format(name=name, subject=misfit.subject)


def _required_versions(package: str, version: str, other: str) -> str:
    """The versions of another package that a release requires, by the tables; empty if unknown."""
    for requirement in requirements_of_release(package, version) if package and version else ():
        if other in requirement.requires:
            return requirement.requires[other]
    return ""


_REQUIRING_PACKAGES = ("transformers", "peft", "trl", "accelerate")
_CHECKED_AT_IMPORT = ("tokenizers", "huggingface-hub", "safetensors")
"""Packages that transformers checks when it is imported, raising an ImportError."""
_EXCLUDED_DEPENDENCIES = {"transformers": ("accelerate", "deepspeed", "torch"), "trl": ("deepspeed", "peft")}
"""Packages that transformers' integrations check themselves, or that only an extra requires."""


_MISMATCH_ERROR_TYPES = (
    "ImportError",
    "ModuleNotFoundError",
    "AttributeError",
    "TypeError",
    "ValueError",
    "RuntimeError",
)


def _judge_certainty(error: LoggedError) -> Certainty | None:
    """The certainty that an exception is about versions; None if it is not."""
    message, last = error.message, error.innermost
    if last is not None and last.path.startswith("<") and error.type in ("ImportError", "ModuleNotFoundError"):
        # A line typed to try the import: for which release it was written is unknown. Of no package is no release.
        return None if _NO_MODULE_PATTERN.search(message) else Certainty.POSSIBLE
    by_library = last is not None and is_library_path(last.path) and "transformers_modules" not in last.path
    if error.type == "TypeError" and _KNOWN_MISMATCH_PATTERN.search(message):
        # A keyword may be misspelt in the user's own call, or in settings that a library passes on.
        if by_library and _KNOWN_SIGNATURE_PATTERN.search(message):
            return Certainty.CERTAIN
        known = _KNOWN_KEYWORD_PATTERN.search(message) is not None
        if known or (by_library and _is_raised_in_library(error)):
            return Certainty.LIKELY
        return Certainty.POSSIBLE if last is None else None
    if error.type in _MISMATCH_ERROR_TYPES and _KNOWN_MISMATCH_PATTERN.search(message):
        return Certainty.CERTAIN if by_library or last is None else Certainty.LIKELY
    if error.type in ("ImportError", "ModuleNotFoundError") and _IMPORT_NAME_PATTERN.search(
        collapse_whitespace(message)
    ):
        if not by_library and (MODEL_CLASS_PATTERN.search(message) or _BASE_PACKAGE_PATTERN.search(message)):
            return Certainty.POSSIBLE
        return Certainty.LIKELY
    if error.type in ("ImportError", "ModuleNotFoundError") and _INSTALLED_PACKAGE_PATTERN.search(
        collapse_whitespace(message)
    ):
        return Certainty.LIKELY if by_library else Certainty.POSSIBLE
    if (
        error.type == "TypeError"
        and _UNEXPECTED_KEYWORD_PATTERN.search(message)
        and last is not None
        and _WRAPPER_PATTERN.search(last.code)
    ):
        return Certainty.LIKELY if by_library else Certainty.POSSIBLE
    if error.type == "TypeError" and _WRAPPER_KEYWORD_PATTERN.search(message):
        return Certainty.POSSIBLE
    if (
        error.type == "TypeError"
        and _SIGNATURE_MISMATCH_PATTERN.search(message)
        and not _CALLBACK_PATTERN.search(message)
    ):
        if by_library and _is_raised_in_library(error):
            return Certainty.LIKELY
        named = _CONFIG_KEYWORD_PATTERN.search(message) or (last is None and _KNOWN_KEYWORD_PATTERN.search(message))
        return Certainty.POSSIBLE if named or (by_library and _crosses_packages(error)) else None
    if (
        error.type == "AttributeError"
        and _ATTRIBUTE_ERROR_PATTERN.search(message)
        and _WRONG_OBJECT_PATTERN.search(message)
    ):
        return None
    if error.type == "AttributeError" and _DDP_ATTRIBUTE_PATTERN.search(message):
        return Certainty.LIKELY if by_library else Certainty.POSSIBLE  # torch's own; another release has it
    cut = last is not None and _IMPORT_PATTERN.search(last.code) is not None  # the error comes from inside the module
    if (
        error.type == "AttributeError"
        and _ATTRIBUTE_ERROR_PATTERN.search(message)
        and (by_library or last is None or cut)
    ):
        return Certainty.LIKELY if by_library else Certainty.POSSIBLE
    if error.type == "AttributeError" and _PLUGIN_ATTRIBUTE_PATTERN.search(message):
        return Certainty.LIKELY if by_library or last is None else Certainty.POSSIBLE
    if (renamed := moved_name_certainty(error)) is not None and "transformers_modules" not in (
        last.path if last else ""
    ):
        return renamed
    if error.type in ("AttributeError", "RuntimeError") and by_library and _MISSING_ATTRIBUTE_PATTERN.search(message):
        # Such a framework uses another package's classes or replaces them by its own.
        # An object that is None is of no release.
        known = "'NoneType' object" not in message and error.passes(*_PATCHING_FRAMEWORKS)
        return Certainty.POSSIBLE if known else None
    return release_mismatch_certainty(error)


def _is_package_missing(log: FailureLog) -> bool:
    """True if a whole package is missing, which has nothing to do with versions."""
    return log.find(_NO_MODULE_PATTERN) is not None


def _is_cut_in_library_import(error: LoggedError, code: str) -> bool:
    """True if a traceback ends while one training library imports from itself or from another."""
    return (
        _IMPORT_PATTERN.search(code) is not None and _is_raised_in_library(error) and error.frame("deepspeed/") is None
    )


def _is_raised_in_library(error: LoggedError) -> bool:
    """True if the innermost frame is a training library's, so the error is not the user's."""
    last = error.innermost
    return last is not None and any(
        f"/{name}/" in last.path for name in ("transformers", "accelerate", "peft", "trl", "diffusers", "deepspeed")
    )


def _crosses_packages(error: LoggedError) -> bool:
    """True if the innermost frames pass from one installed package to another, without a user's frame between."""
    last = error.frames[-3:]
    packages = [str(found.group(1)) for frame in last if (found := _PACKAGE_PATTERN.search(frame.path))]
    return len(packages) == len(last) and len(set(packages)) > 1


_PACKAGE_PATTERN = Pattern(r"(?:site|dist)-packages/(\w+)/")

_CONFIRM = (translated("pip list shows packages from different periods; pip check names a conflict"),)
