"""A package that uses a name which another package lacks: which packages they are, and the name."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gonogo.evidence.failure.message import parse_message
from gonogo.evidence.log.code_owner import code_place, distribution_of
from gonogo.evidence.log.failure_log import LoggedError
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding.failure import CodePlace, FailureFacts, Message, RaisedException

FORMS = (
    *("unexpected_keyword", "missing_arguments", "argument_count", "no_attribute", "not_importable", "no_module"),
    "undefined_symbol",
)
PLAIN_TYPES = frozenset(
    ("dict", "list", "tuple", "set", "str", "int", "float", "bool", "bytes", "function", "method", "generator", "type")
)
"""Python's built-in types, which no package release changes."""
CALL_MISMATCH_FORMS = ("unexpected_keyword", "missing_arguments", "argument_count")
_GENERIC_DECORATOR_MODULES = (
    "torch.distributed.elastic",
    "torch.nn",
    "torch._dynamo",
    "torch.utils",
    "torch.amp",
    "ray.",
    "hydra.",
)
"""Modules whose decorators wrap functions of users and other packages."""
_PACKAGE_BY_CLASS = tuple(
    (lazy_compile(rf"^(?:{names})\b"), package)
    for package, names in (
        (
            "trl",
            r"(?:SFT|DPO|GRPO|KTO|ORPO|CPO|PPO|RLOO|GKD|Reward|AsyncGRPO)(?:Trainer|Config)|VLLM(?:Generation|Client)",
        ),
        (
            "transformers",
            r"(?:Seq2Seq)?(?:Trainer|TrainingArguments)|\w+For(?:CausalLM|ConditionalGeneration|SequenceClassification)"
            r"|GenerationConfig|DynamicCache|PreTrained\w+|PretrainedConfig|AutoModel\w*|BitsAndBytesConfig"
            r"|DataCollatorFor\w+",
        ),
        (
            "accelerate",
            r"Hf(?:Trainer)?DeepSpeedConfig|Accelerator|AcceleratorState|PartialState|FullyShardedDataParallelPlugin|DeepSpeedPlugin",
        ),
        ("peft", r"Lora\w*Config|PeftModel\w*|LoraModel|LoraLayer"),
        (
            "megatron-core",
            r"PackedSeqParams|TransformerConfig|MLATransformerConfig|GPTModel|ModelParallelConfig|OptimizerConfig"
            r"|DistributedDataParallelConfig|TransformerLayer|TEDotProductAttention|DistributedOptimizer",
        ),
        ("deepspeed", r"DeepSpeed\w+|PipelineModule"),
        (
            "vllm",
            r"LLM|AsyncLLM\w*|EngineArgs|AsyncEngineArgs|SamplingParams|VllmConfig|LoRARequest|LLMEngine|FusedMoE"
            r"|GPUModelRunner|WorkerWrapperBase",
        ),
        ("sglang", r"ServerArgs"),
        (
            "torch",
            r"DeviceMesh|DTensor|FullyShardedDataParallel|DistributedDataParallel|FSDPModule|fully_shard"
            r"|barrier|monitored_barrier|init_process_group|new_group|init_device_mesh|broadcast_object_list"
            r"|all_gather_object|gather_object|scatter_object_list|all_gather_into_tensor|reduce_scatter_tensor",
        ),
    )
)
"""Well-known class names, and the distribution that they belong to."""
_DERIVED_TRAINER_PATTERN = lazy_compile(
    r"^\w+(?:SFT|DPO|GRPO|KTO|ORPO|CPO|PPO|RLOO)\w*Trainer$|^(?:SFT|DPO|GRPO|KTO)\w+Trainer$"
)
"""Subclasses of trl's trainers in frameworks and user code, recognized by their names."""


class ApiMismatch(NamedTuple):
    """The package ``asks`` uses ``names`` that the installed ``lacks`` doesn't have; empty if unknown.

    ``by_user``: the user's own line uses them.
    """

    form: str
    lacks: str
    lacks_version: str
    asks: str
    asks_version: str
    subject: str
    names: tuple[str, ...]
    by_user: bool
    at: CodePlace | None


def find_api_mismatch(facts: FailureFacts, versions: Mapping[str, str]) -> ApiMismatch | None:
    """The mismatch of the first exception in the chain that reports one, or None."""
    for raised in facts.chain:
        if raised.message.form in FORMS and (found := _parse_api_mismatch(raised, versions)) is not None:
            return found
    return None


def api_mismatch_of_error(error: LoggedError, versions: Mapping[str, str]) -> ApiMismatch | None:
    """The mismatch reported by one exception of a log, or None."""
    raised = RaisedException(
        type=error.type,
        message=parse_message(error.type, error.message),
        frames=tuple(code_place(frame, versions) for frame in error.frames[-40:]),
        log=error.raised.at.path,
        line=error.raised.at.number,
    )
    return _parse_api_mismatch(raised, versions) if raised.message.form in FORMS else None


def _parse_api_mismatch(exception: RaisedException, versions: Mapping[str, str]) -> ApiMismatch | None:
    message, frames = exception.message, exception.frames
    if message.subject == "NoneType":
        return None
    at = _requesting_frame(frames, message.form)
    lacks = _package_lacking_name(message, at, frames, versions)
    requires = at.package if at is not None and at.package != lacks else ""
    if not requires and message.form == "no_module" and (found := _WRAPPED_IMPORT_PATTERN.search(message.text)):
        requires = distribution_of(found.group(1))
    return ApiMismatch(
        form=message.form,
        lacks=lacks,
        lacks_version=versions.get(lacks, ""),
        asks=requires,
        asks_version=(at.release if at is not None and requires else "") or versions.get(requires, ""),
        subject=message.subject,
        names=message.names,
        by_user=at is not None and at.owner == "user",
        at=at,
    )


_WRAPPED_IMPORT_PATTERN = lazy_compile(r"Failed to import ([A-Za-z_]\w{0,60})[\w.]* because of the following error")
"""transformers, trl and diffusers import their modules lazily, and wrap the ImportError in this message."""

FORWARDING_FUNCTIONS = ("_call_impl", "_wrapped_call_impl", "inner", "__call__", "wrapper", "wrapped_fn", "_fn")
"""Functions that forward their arguments to another function."""


_FORWARDED_KEYWORDS_PATTERN = lazy_compile(r"\*\*\s*[A-Za-z_]\w*")


def _requesting_frame(frames: Sequence[CodePlace], form: str) -> CodePlace | None:
    """The frame that uses the name, skipping Python's importer and decorators, which only forward the call."""
    own = [frame for frame in frames if frame.owner != "python" and not frame.path.startswith("<")]
    while form in CALL_MISMATCH_FORMS and len(own) > 1:
        if own[-1].function not in FORWARDING_FUNCTIONS:
            break
        own.pop()
    if form == "unexpected_keyword" and len(own) > 1 and _FORWARDED_KEYWORDS_PATTERN.search(own[-1].code[:2000]):
        # Keyword arguments that a function only forwards are the caller's.
        caller = own[-2]
        if (
            own[-1].package
            and caller.package
            and caller.package not in (own[-1].package, "torch")
            and _may_pass_keywords(caller.code)
        ):
            own.pop()
    if form in ("no_attribute", "not_importable") and own and own[-1].function == "__getattr__":
        own.pop()
    return own[-1] if own else None


def _may_pass_keywords(code: str) -> bool:
    """Whether a line of code shows keyword arguments, or may have them on the lines that follow it."""
    return "=" in code.partition("(")[2] or "**" in code or not code.rstrip().endswith(")")


_OBJECT_PATTERN = lazy_compile(r"^'[\w.]+' object has no attribute")
_EXTENDED_CLASS_PATTERN = lazy_compile(r"^(?:Seq2Seq)?TrainingArguments$")
"""Classes of transformers from which frameworks derive their own of the same name."""
_LAYER_CLASS_PATTERN = lazy_compile(
    r"(?:Attention|MLP|Experts|Router|DecoderLayer|EncoderLayer|RotaryEmbedding|RMSNorm)\w*$"
)
_PATCH_PATTERN = lazy_compile(r"(?:^|[._])(?:monkey_?)?patch(?:e[sd]|er|ing)?(?:$|[._])")
"""Modules whose functions take the place of methods of another package's classes."""


def _package_lacking_name(
    message: Message, at: CodePlace | None, frames: Sequence[CodePlace], versions: Mapping[str, str]
) -> str:
    """The distribution that lacks the name."""
    form, subject = message.form, message.subject
    if form == "no_attribute" and _OBJECT_PATTERN.search(message.text):
        top = subject.partition(".")[0]
        if top in sys.stdlib_module_names or ("." not in subject and subject.islower()):
            return ""  # A class of Python's own (functools.partial), or one whose module isn't told (device).
        if at is not None and at.package not in ("", "transformers"):
            if _EXTENDED_CLASS_PATTERN.search(subject):
                return ""
            if _LAYER_CLASS_PATTERN.search(subject) and _PATCH_PATTERN.search(at.module) and "transformers" in versions:
                return "transformers"
    if form == "undefined_symbol":
        return library_package(subject)
    if form == "no_module" and subject.partition(".")[0] == "transformers_modules":
        return ""  # A model's own code from the Hub, which no release of a package has.
    if form in ("not_importable", "no_module"):
        return distribution_of(subject)
    if form == "no_attribute" and subject in PLAIN_TYPES:
        return ""
    if form == "no_attribute" and ("." in subject or subject.islower()):
        return distribution_of(subject)
    if package := package_of_class(subject):
        return package
    if form == "no_attribute" and _DERIVED_TRAINER_PATTERN.search(subject):
        return "trl"
    if frames and frames[-1].function == subject.rpartition(".")[2] and frames[-1].package:
        return frames[-1].package
    return _decorating_package(frames) if form in CALL_MISMATCH_FORMS else ""


def package_of_class(name: str) -> str:
    """The distribution of a well-known class or function; empty for other names."""
    return next((package for pattern, package in _PACKAGE_BY_CLASS if pattern.search(name)), "")


def _decorating_package(frames: Sequence[CodePlace]) -> str:
    """The package of the innermost decorator; the decorated function usually belongs to the same package."""
    last = frames[-1] if frames else None
    if last is None or last.function != "wrapper" or last.module.startswith(_GENERIC_DECORATOR_MODULES):
        return ""
    caller = next((frame for frame in reversed(frames) if frame.function not in FORWARDING_FUNCTIONS), None)
    return last.package if caller is not None and caller.package != last.package else ""


_TRAINER_PATTERN = lazy_compile(r"^(SFT|DPO|GRPO|KTO|ORPO|CPO|PPO|RLOO|GKD|Reward|AsyncGRPO)Trainer\b")


def trainer_config_class(subject: str) -> str:
    """The config class of a trainer, to which trl has moved many of the trainer's arguments."""
    if found := _TRAINER_PATTERN.match(subject):
        return f"{found.group(1)}Config"
    return "TrainingArguments" if subject.startswith(("Trainer.", "Seq2SeqTrainer.")) else ""


def library_package(path: str) -> str:
    """The distribution of a compiled library: ``flash-attn`` for ``…/site-packages/flash_attn_2_cuda.cpython.so``."""
    inside = path.replace("\\", "/").rpartition("-packages/")[2]
    first = inside.partition("/")[0] if "/" in inside and not inside.startswith("/") else inside.rpartition("/")[2]
    name = first.partition(".")[0]
    if inside.startswith("/") and "/" in inside.strip("/"):
        # Outside site-packages, the folder indicates the package more often than the file name.
        folder = inside.rpartition("/")[0].rpartition("/")[2]
        name = folder if name.startswith("_") else name
    return distribution_of(name)
