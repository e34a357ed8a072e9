"""Tells in a log which use of an empty (partitioned) parameter failed: the same last line has several causes."""

from collections.abc import Iterator, Mapping
from enum import Enum

import msgspec

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty
from gonogo.hazards.zero3._zero3_in_log import is_single_process, is_under_zero3

_FSDP_FRAMES = ("fully_sharded_data_parallel.py", "torch/distributed/fsdp", "_fsdp_state.py")
_FSDP_PATTERN = Pattern(r"(?i)\bfsdp2?\b|FullyShardedDataParallel")

_EMBEDDING_ERROR_PATTERN = Pattern(
    r"'weight' must be 2-?D|Padding_idx must be within num_embeddings"
    r"|Embeddings parameter is expected to be 2-dimensional"
)
# Shapes that only an empty parameter has (or the [1] that DeepSpeed left in its place in 2021).
_EMPTY_WEIGHT_PATTERN = Pattern(
    r"vec \([01]\)|got weight of shape \[[01]\]|weight of size \[[01]\]|\b1-dimensional weight \[[01]\]"
    r"|existing size \(0\)|weight should have at least three dimensions|mat2 must be a matrix, got 1-D tensor"
    r"|output with shape \[[01]\] doesn't match the broadcast shape"
    r"|m2: \[1 x 1\]|\{\[[01]\]\}"
)
_ZERO_SIZE_PATTERN = Pattern(
    r"size of tensor a \(0\) must match|must match the size of tensor b \(0\)|is invalid for input of size 0\b"
    r"|cannot be multiplied \(\d+x\d+ and (?:0x\d+|\d+x0|1x1)\)|but got: \[\d+, 0\]"
    r"|number of dimensions \(1\) for operand \d"
)

RESIZE_FUNCTIONS = (
    "resize_token_embeddings",
    "_get_resized_",
    "_resize_token",
    "resize_embedding",
    "_init_added_",
    "_mean_init",
)
INIT_FUNCTIONS = (
    "_init_weights", "init_weights", "initialize_weights", "_initialize_missing", "smart_apply", "_initialize_weights",
    "torch/nn/init.py", "reset_parameters",
)  # fmt: skip
AUXILIARY = (
    "compute_metrics", "bert_score", "bertscore", "BERTScore", "evaluate_modules", "datasets_modules/metrics", "bleurt",
    "/comet/", "moverscore", "sentence_transformers",
)  # fmt: skip
_AUXILIARY_MODEL_PATTERN = Pattern(
    r"(?i)teacher|ref_model|reference_model|ref_policy|ref_logp|ref_per_token|reference_log|self\.ref\b|model_ref\b"
    r"|reward_model|reward_func|value_model|text_encoder|image_encoder|clip_model|clip_encoder|\bvae\b|vae\.encode"
    r"|\bema_"
    r"|old_policy"
    r"|critic_model|rm_model|null_ref_context|encode_prompt|draft_model"
)
_AUXILIARY_MODEL_SETUP_PATTERN = (
    r"(?i)stage[= ]+(?:dpo|ppo|kto)\b|\bdpo\b|\bppo\b|rlhf|teacher|distil|text_encoder|ref_model|reward_model"
)
_ENGINE = "deepspeed/runtime/engine.py"
_TRAINING_FRAMES = ("training_step", "compute_loss", "_inner_training_loop")
_TORCH_LAYER_PATHS = ("torch/nn/modules/", "torch/nn/parallel/", "/deepspeed/", "torch/_dynamo", "torch/utils")
_FUNCTIONAL_PATHS = (
    "torch/nn/functional.py", "torch/_ops", "torch/_higher", "zero/linear.py", "torch/autograd/function.py",
    "autocast_mode.py", "einops",
)  # fmt: skip
# The weight of a child module or of an argument; `self.weight` in a layer's own forward is gathered.
_DIRECT_USE_PATTERN = Pattern(
    r"\bF\.(?:linear|embedding|conv\w*|layer_norm|normalize)\(|functional\.(?:linear|embedding)\(|\w\.\w+\.weight\b"
    r"|(?:^|[^\w.])[a-rt-zA-Z_]\w*\.weight\b|lm_head_weight|delta_weight|(?:matmul|einsum)\(.{0,80}weight|merge\w*\("
)
_SIZE_MISMATCH_PATTERN = Pattern(r"^size mismatch(?:,| when| got| error|$)")
_LOOKS_UP_PATTERN = Pattern(r"\btorch\.embedding\(|\bF\.embedding\(|padding_idx < weight\.size\(0\)")


class EmptyParameterCause(Enum):
    """How an empty parameter came to be used; each member belongs to one hazard."""

    OUTSIDE_ENGINE = "another model, which the engine does not know"
    AUXILIARY = "a metric's model, made during training"
    NO_LAUNCHER = "the main model, which no engine wraps"
    DIRECT = "a parameter, read where its module does not run"


class EmptyParameterUse(msgspec.Struct, frozen=True):
    """Where an empty parameter was used, and how certain each cause is."""

    evidence: LoggedError | LineMatch
    causes: Mapping[EmptyParameterCause, Certainty]

    @property
    def user_code_location(self) -> str:
        """``path:line`` of the frame outside of libraries that is nearest to the failure; empty if there is none."""
        frame = self.evidence.last_user_frame if isinstance(self.evidence, LoggedError) else None
        return f"{frame.path}:{frame.line}" if frame else ""


def find_empty_parameter_uses(log: FailureLog) -> Iterator[EmptyParameterUse]:
    """The places at which an operator got an empty parameter under ZeRO-3, each with its possible causes."""
    on = is_under_zero3(log)
    if on is False:
        return
    if on is None and (log.passes(*_FSDP_FRAMES) or log.find(_FSDP_PATTERN)):
        return
    seen = False
    for error in log.errors_of("RuntimeError", "AssertionError", "ValueError", "IndexError"):
        embedding = _EMBEDDING_ERROR_PATTERN.search(error.message) is not None
        if not embedding:
            if on and not error.frames and _SIZE_MISMATCH_PATTERN.search(error.message):
                seen = True
                yield EmptyParameterUse(
                    error,
                    {
                        EmptyParameterCause.DIRECT: Certainty.POSSIBLE,
                        EmptyParameterCause.OUTSIDE_ENGINE: Certainty.POSSIBLE,
                    },
                )
            shape = _EMPTY_WEIGHT_PATTERN.search(error.message) or _ZERO_SIZE_PATTERN.search(error.message)
            if shape is None or not (
                on or _passes_engine_forward(error) or "(0)" in shape.group(0) or "[0]" in shape.group(0)
            ):
                continue
        if "loading state_dict" in error.message or error.passes(*RESIZE_FUNCTIONS, *INIT_FUNCTIONS):
            continue
        seen = True
        yield EmptyParameterUse(error, _causes_from_error(log, error, embedding, on is True))
    for cut in () if seen or log.errors else log.truncated_errors:
        if causes := _causes_from_cut_traceback(log, cut, on is True):
            seen = True
            yield EmptyParameterUse(cut, causes)
    if seen:
        return
    if found := log.find(_EMBEDDING_ERROR_PATTERN):
        yield EmptyParameterUse(found, _causes_without_frames(log, True, on is True))
    elif not log.errors and on and (found := log.find(_EMPTY_WEIGHT_PATTERN) or log.find(_ZERO_SIZE_PATTERN)):
        yield EmptyParameterUse(found, _causes_without_frames(log, False, True))


def _causes_from_cut_traceback(
    log: FailureLog, cut_error: LoggedError, zero3_is_on: bool
) -> Mapping[EmptyParameterCause, Certainty]:
    """The causes of a traceback without its last line: it shows where it failed, not how, so at most likely."""
    last = cut_error.frames[-1]
    sure = Certainty.LIKELY if zero3_is_on else Certainty.POSSIBLE
    if _LOOKS_UP_PATTERN.search(last.code) or last.function == "embedding":
        if "padding_idx <" in last.code:
            sure = Certainty.LIKELY
        causes = _causes_from_error(log, cut_error, True, zero3_is_on)
        return {use: sure if index == 0 else Certainty.POSSIBLE for index, use in enumerate(causes)}
    if any(_AUXILIARY_MODEL_PATTERN.search(frame.code) for frame in cut_error.frames[-2:]) and cut_error.passes(
        *_TRAINING_FRAMES
    ):
        return {EmptyParameterCause.OUTSIDE_ENGINE: sure}
    if zero3_is_on and last.function in ("merge", "merge_and_unload", "get_delta_weight") and "peft/" in last.path:
        return {EmptyParameterCause.DIRECT: sure}
    if _passes_engine_forward(cut_error) and _classify_caller(cut_error) is OperatorCaller.USER:
        return {EmptyParameterCause.DIRECT: sure}
    return {}


def _causes_from_error(
    log: FailureLog, error: LoggedError, is_embedding: bool, zero3_is_on: bool
) -> Mapping[EmptyParameterCause, Certainty]:
    if error.passes(*AUXILIARY):
        return {EmptyParameterCause.AUXILIARY: Certainty.CERTAIN if zero3_is_on or is_embedding else Certainty.LIKELY}
    if any(_AUXILIARY_MODEL_PATTERN.search(f"{frame.code} {frame.function}") for frame in error.all_frames):
        return {
            EmptyParameterCause.OUTSIDE_ENGINE: Certainty.CERTAIN if zero3_is_on or is_embedding else Certainty.LIKELY
        }
    layer = _classify_caller(error)
    in_engine = _passes_engine_forward(error)
    if layer is OperatorCaller.USER and (in_engine or not is_embedding):
        sure = Certainty.CERTAIN if in_engine else Certainty.LIKELY
        if in_engine:
            return {EmptyParameterCause.DIRECT: sure}
        return {
            EmptyParameterCause.DIRECT: sure if zero3_is_on else Certainty.POSSIBLE,
            EmptyParameterCause.NO_LAUNCHER: Certainty.POSSIBLE,
        }
    if not (is_embedding or layer is OperatorCaller.LAYER):
        return _causes_without_frames(log, is_embedding, zero3_is_on)
    if in_engine:
        return {EmptyParameterCause.OUTSIDE_ENGINE: Certainty.LIKELY, EmptyParameterCause.DIRECT: Certainty.POSSIBLE}
    if error.passes(*_TRAINING_FRAMES):
        singly = is_single_process(log)
        if singly is False:
            return {
                EmptyParameterCause.OUTSIDE_ENGINE: Certainty.LIKELY,
                EmptyParameterCause.NO_LAUNCHER: Certainty.POSSIBLE,
            }
        sure = Certainty.CERTAIN if singly and zero3_is_on else Certainty.LIKELY
        return {EmptyParameterCause.NO_LAUNCHER: sure, EmptyParameterCause.OUTSIDE_ENGINE: Certainty.POSSIBLE}
    return _causes_without_frames(log, True, zero3_is_on)


def _passes_engine_forward(error: LoggedError) -> bool:
    return any(_ENGINE in frame.path and frame.function == "forward" for frame in error.all_frames)


def _causes_without_frames(
    log: FailureLog, is_embedding: bool, zero3_is_on: bool
) -> Mapping[EmptyParameterCause, Certainty]:
    if not is_embedding:
        return {
            EmptyParameterCause.DIRECT: Certainty.LIKELY if zero3_is_on else Certainty.POSSIBLE,
            EmptyParameterCause.OUTSIDE_ENGINE: Certainty.POSSIBLE,
        }
    singly = is_single_process(log)
    if log.setup.mentions(_AUXILIARY_MODEL_SETUP_PATTERN):
        return {
            EmptyParameterCause.OUTSIDE_ENGINE: Certainty.LIKELY,
            EmptyParameterCause.NO_LAUNCHER: Certainty.POSSIBLE,
        }
    if singly:
        return {
            EmptyParameterCause.NO_LAUNCHER: Certainty.LIKELY,
            EmptyParameterCause.OUTSIDE_ENGINE: Certainty.POSSIBLE,
        }
    return {EmptyParameterCause.OUTSIDE_ENGINE: Certainty.LIKELY, EmptyParameterCause.NO_LAUNCHER: Certainty.POSSIBLE}


class OperatorCaller(Enum):
    """The code that passed the empty parameter to the operator."""

    LAYER = "a layer of torch, in its forward"
    USER = "code that reads a parameter of another module"
    UNKNOWN = "the frames do not say"


def _classify_caller(error: LoggedError) -> OperatorCaller:
    for frame in reversed(error.frames):
        if any(part in frame.path for part in _FUNCTIONAL_PATHS):
            continue
        if any(part in frame.path for part in _TORCH_LAYER_PATHS):
            return OperatorCaller.LAYER
        return OperatorCaller.USER if _DIRECT_USE_PATTERN.search(frame.code) else OperatorCaller.UNKNOWN
    return OperatorCaller.UNKNOWN
