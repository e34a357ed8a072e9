from gonogo.evidence.environment.compatibility import newest_known_transformers, releases_with_model_type
from gonogo.evidence.environment.version_range import parse_version
from gonogo.evidence.log.code_owner import code_owner_of_path
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.environment._model_names import model_type_label
from gonogo.hazards.environment._surroundings import is_outside_training, truncated_tracebacks
from gonogo.hazards.facts.installed import describe_package, package_version_span, pip_install
from gonogo.hazards.rule import Certainty, Environment, Finding, Findings, Hazard, Pattern, Run, Severity, translated

_REMOTE_CODE_ERROR_TYPES = (
    "KeyError",
    "AttributeError",
    "ImportError",
    "ModuleNotFoundError",
    "TypeError",
    "NameError",
)
_REMOTE_CODE_PACKAGE = "transformers_modules"
_KNOWN_BREAK_PATTERN = Pattern(
    r"'\w*Tokenizer(?:Fast)?' object has no attribute '(?:sp_tokenizer|tokenizer|sp_model|vocab\w*|IMAGE_ST"
    r"|encoder|mergeable_ranks)'"
    r"|_set_gradient_checkpointing\(\) got an unexpected keyword argument"
    r"|Tokenizer\w*\._pad\(\) got an unexpected keyword argument 'padding_side'"
    r"|_pad\(\) got an unexpected keyword argument"
    r"|'DynamicCache' object has no attribute '(?:seen_tokens|_seen_tokens|get_max_length|get_usable_length"
    r"|key_cache|max_cache_len)'"
    r"|'(?:ChatGLM|Baichuan|BaiChuan|QWen|Qwen|InternLM2?|InternVL|MiniCPM\w*|Phi3\w*|DeepseekV[23]|Florence2"
    r"|Deepseek\w*|XverseModel)"
    r"\w*' object has no attribute '(?:generate|_extract_past_from_model_output|_update_model_kwargs_for_generation"
    r"|all_tied_weights_keys|_supports_sdpa|forced_bos_token_id|max_new_tokens|_convert_to_standard_cache"
    r"|model_parallel)'"
    r"|cannot import name '(?:is_torch_fx_available|is_flash_attn_available|is_torch_greater_or_equal_than_1_13"
    r"|add_start_docstrings_to_callable|LossKwargs|is_flash_attn_greater_or_equal_2_10|_flash_supports_window_size)'"
)
_TIED_KEYS_PATTERN = Pattern(r"'\w+' object has no attribute '(?:all_tied_weights_keys|_tied_weights_keys)'")
_TIED_KEYS_LIST_PATTERN = Pattern(r"'list' object has no attribute 'keys'")
_TIED_KEYS_FRAMES = ("_get_tied_weight_keys", "get_expanded_tied_weights_keys", "tied_weight")
"""transformers 5 expects tied weights as a dict, and sets ``all_tied_weights_keys`` in ``post_init``."""
_ARCHITECTURES_KEY_ERRORS = ("'architectures'", '"architectures"')
_UNSURE_PATTERN = Pattern(r"\b(?:cpu|cuda|device)\b")


class TransformersVersionRemoteCodeBreak(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A model with remote code, written for a much older transformers than the installed one."""
        config = run.model.config if run.model is not None else None
        if run.model is None or config is None or not config.get("auto_map"):
            return
        written_for = parse_version(str(config.get("transformers_version") or ""))
        if written_for is None or not _is_remote_code_loaded(run, run.model.model_type):
            return
        kind = run.model.model_type or "?"
        old = written_for.release[:2] < (4, 34)
        if kind in _TOKENIZERS and old and environment.within("transformers", ">=4.34"):
            certainty, severity = Certainty.LIKELY, Severity.ERROR
        elif written_for.release[0] < 5 and environment.within("transformers", ">=5"):
            certainty, severity = Certainty.POSSIBLE, Severity.WARNING
        else:
            return
        yield self.finding(
            self.texts["cause"].format(written=written_for, installed=describe_package(environment, "transformers")),
            certainty=certainty,
            severity=severity,
            cure=(pip_install("transformers", f"=={written_for.public}"), self.cures[1]),
            spans=(package_version_span(environment, "transformers"), run.arguments.model.span(model_type_label(kind))),
            confirm=translated("The model's .py files have not been updated since"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """An error raised in the model's remote code, or one that such code is known for."""
        outside = is_outside_training(log)
        for error in log.errors_of(*_REMOTE_CODE_ERROR_TYPES):
            certainty = _judge_certainty(error)
            if certainty is None or self.patterns["other_cause"].search(error.message):
                continue
            if outside or (certainty is Certainty.LIKELY and _UNSURE_PATTERN.search(error.message)):
                certainty = Certainty.POSSIBLE
            yield self._build_finding(error, certainty)
            return
        cut = next((error for error, code in truncated_tracebacks(log) if _is_cut_while_loading(error)), None)
        tied = (
            log.find(_TIED_KEYS_LIST_PATTERN)
            if any(log.has(name) for name in _TIED_KEYS_FRAMES)
            else log.find(_TIED_KEYS_PATTERN)
        )
        evidence = cut or log.find(_KNOWN_BREAK_PATTERN) or tied
        own = any(_imports_for_itself(error, error.innermost.path) for error in log.errors if error.innermost)
        if evidence is not None and not own:
            yield self._build_finding(evidence, Certainty.POSSIBLE if outside else Certainty.LIKELY)

    def _build_finding(self, evidence: LoggedError | LineMatch, certainty: Certainty) -> Finding:
        return self.log_finding(
            evidence,
            translated("The model's own code was not written for the installed transformers release."),
            certainty=certainty,
            confirm=translated("config.json's transformers_version differs from the installed one"),
        )


_TOKENIZERS = ("chatglm", "baichuan")
"""Remote tokenizers that load their model after ``super().__init__``, which calls them since transformers 4.34."""


def _is_remote_code_loaded(run: Run, kind: str | None) -> bool:
    """Whether the model's remote code is loaded: it is trusted, or is the only code for this model type."""
    if run.arguments.get("trust_remote_code").truth is True:
        return True
    for script in run.scripts:
        for call in script.calls("*.from_pretrained"):
            if call.keyword("trust_remote_code").truth:
                return True
    known = releases_with_model_type(kind) if kind is not None else None
    return known is None and bool(newest_known_transformers()) and run.framework in ("ms-swift", "llamafactory")


def _is_cut_while_loading(error: LoggedError) -> bool:
    """True if a truncated traceback ends while transformers creates the model's tokenizer or configuration."""
    last = error.innermost
    made = (
        last is not None
        and _REMOTE_CODE_PACKAGE in last.path
        and ("tokenization" in last.path or "configuration" in last.path)
    )
    return made and error.passes("from_pretrained", "_from_pretrained", "tokenization_utils")


def _imports_for_itself(error: LoggedError, path: str) -> bool:
    """Whether the import is a framework's own (axolotl, vLLM), so that no model's code is involved."""
    owner = code_owner_of_path(path)
    own = owner.owner in ("package", "clone") and owner.package not in ("transformers", "")
    return own and error.type in ("ImportError", "ModuleNotFoundError") and error.frame(_REMOTE_CODE_PACKAGE) is None


def _judge_certainty(error: LoggedError) -> Certainty | None:
    last = error.innermost
    in_model = last is not None and _REMOTE_CODE_PACKAGE in last.path
    if in_model and error.type == "KeyError":
        return Certainty.CERTAIN if last is not None and "configuration" in last.path else Certainty.LIKELY
    if last is not None and not in_model and _imports_for_itself(error, last.path):
        return None
    if _KNOWN_BREAK_PATTERN.search(error.message) or _TIED_KEYS_PATTERN.search(error.message):
        return Certainty.LIKELY
    if _TIED_KEYS_LIST_PATTERN.search(error.message) and error.passes(*_TIED_KEYS_FRAMES):
        return Certainty.LIKELY
    if error.type == "KeyError":
        bare = last is None and error.message.strip() in _ARCHITECTURES_KEY_ERRORS
        return Certainty.LIKELY if bare else None
    if in_model:
        return Certainty.LIKELY
    return Certainty.POSSIBLE if error.frame(_REMOTE_CODE_PACKAGE) is not None and error.type == "TypeError" else None
