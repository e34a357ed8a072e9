"""What tells, in a log, which use of an empty (partitioned) parameter failed: the same last line has several causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty

ZERO3_WORDS = (
    "zero3", "zero-3", "zero_3", "ZeRO-3", "ZeRO3", "Zero3", "Zero-3", "ZERO3", "ZeRO stage 3", "ZeRO Stage 3", "ds_z3",
    "zero.Init", "zero.init", "partition_parameters", "stage3", "Stage3",
)  # fmt: skip
"""Literals of lines that say that ZeRO-3 is on."""

_ZERO3 = Pattern(
    r"(?i)zero[-_ ]?(?:stage|optimization_stage)?[-_ .=:]{0,30}3(?:[^\d.]|$)|\bds_z(?:ero)?_?3|zero\.init\b"
    r"|partition_parameters\.py|partitioned_param_coordinator|zero/parameter_offload\.py|zero/stage3\.py"
    r"|(?:deepspeed|ds)[-_ ]?stage[-_ ]?3|\bzero_config \.+ stage=3|[\"']stage[\"']: ?3\b|\bstage ?3\b"
)
_LOWER_STAGE = Pattern(r"(?i)zero_config \.+ stage=[012]\b|ZeRO stage [012]\b|[\"']stage[\"']: ?[012]\b")
_SHARDED_OTHERWISE = ("fully_sharded_data_parallel.py", "torch/distributed/fsdp", "_fsdp_state.py")
_SERVING = Pattern(r"(?i)\bcomfyui\b|/vllm/|\bsglang\b|lmdeploy|text-generation-inference|ollama")

_EMBEDDING = Pattern(
    r"'weight' must be 2-?D|Padding_idx must be within num_embeddings"
    r"|Embeddings parameter is expected to be 2-dimensional"
)
# Shapes that only an empty parameter (or the [1] that DeepSpeed of 2021 left in its place) gives.
_NO_ELEMENTS = Pattern(
    r"vec \([01]\)|got weight of shape \[[01]\]|weight of size \[[01]\]|\b1-dimensional weight \[[01]\]"
    r"|existing size \(0\)|weight should have at least three dimensions|mat2 must be a matrix, got 1-D tensor"
    r"|m2: \[1 x 1\]|\{\[[01]\]\}"
)
_NOUGHT = Pattern(
    r"size of tensor a \(0\) must match|must match the size of tensor b \(0\)|is invalid for input of size 0\b"
    r"|cannot be multiplied \(\d+x\d+ and (?:0x\d+|\d+x0|1x1)\)|but got: \[\d+, 0\]"
    r"|number of dimensions \(1\) for operand \d"
)

RESIZING = ("resize_token_embeddings", "_get_resized_", "_resize_token", "resize_embedding", "_init_added_")
INITIALIZING = (
    "_init_weights", "init_weights", "initialize_weights", "_initialize_missing", "smart_apply", "_initialize_weights",
    "torch/nn/init.py", "reset_parameters",
)  # fmt: skip
AUXILIARY = (
    "compute_metrics", "bert_score", "bertscore", "BERTScore", "evaluate_modules", "datasets_modules/metrics", "bleurt",
    "comet", "moverscore", "sentence_transformers",
)  # fmt: skip
_OTHER_MODELS = Pattern(
    r"(?i)teacher|ref_model|reference_model|ref_policy|ref_logp|ref_per_token|reference_log|self\.ref\b|model_ref\b"
    r"|reward_model|value_model|text_encoder|image_encoder|clip_model|clip_encoder|\bvae\b|vae\.encode|\bema_"
    r"|old_policy"
    r"|critic_model|rm_model|null_ref_context|encode_prompt|draft_model"
)
_OTHER_IN_WORDS = Pattern(
    r"(?i)\bteacher|distil|ref(?:erence)?[-_ ]model|\bDPO\b|\bPPO\b|\bRLHF\b|text[-_ ]encoder|reward model|diffusers"
    r"|参考模型|教师模型|蒸馏|奖励模型"
)
_OTHER_IN_SETUP = (
    r"(?i)stage[= ]+(?:dpo|ppo|kto)\b|\bdpo\b|\bppo\b|rlhf|teacher|distil|text_encoder|ref_model|reward_model"
)
_AUXILIARY_IN_WORDS = Pattern(r"(?i)bert[-_]?score|bleurt|compute_metrics|evaluate\.load")
_ENGINE = "deepspeed/runtime/engine.py"
_TRAINING = ("training_step", "compute_loss", "_inner_training_loop")
_OF_TORCH = ("torch/nn/", "/deepspeed/", "torch/_dynamo", "torch/utils", "torch/autograd")
_DIRECT_CODE = Pattern(
    r"F\.(?:linear|embedding|conv\w*|layer_norm|normalize)\(|functional\.(?:linear|embedding)\(|\.weight\b|matmul\("
    r"|einsum\(| @ |\.expand\(|\.repeat\(|merge\w*\("
)


class Use(Enum):
    """How an empty parameter came to be used; each is a hazard's."""

    OUTSIDE_ENGINE = "another model, which the engine does not know"
    AUXILIARY = "a metric's model, made during training"
    NO_LAUNCHER = "the main model, which no engine wraps"
    DIRECT = "a parameter, read where its module does not run"


@dataclass(frozen=True)
class EmptyUse:
    """Where an empty parameter was used, and how sure each explanation is."""

    evidence: LoggedError | Found
    causes: Mapping[Use, Certainty]

    @property
    def frame_text(self) -> str:
        """The user's line that is nearest to the failure, or nothing."""
        frame = self.evidence.users_frame if isinstance(self.evidence, LoggedError) else None
        return f"{frame.path}:{frame.line}" if frame else ""


def zero3(log: FailureLog) -> bool | None:
    """True where the log or what is beside it says that ZeRO-3 is on, False where it names a lower stage, or None."""
    stage = log.setup.zero_stage
    if stage == 3 or (stage is None and log.setup.mentions(r"(?i)zero[-_]?(?:stage)?[-_]?3(?!\d)|\bds_z3")):
        return True
    if log.find(_ZERO3) and not (stage in (0, 1, 2) and not log.passes("zero/stage3", "partitioned_param")):
        return True
    return False if stage is not None or log.find(_LOWER_STAGE) else None


def started_singly(log: FailureLog) -> bool | None:
    """True where one process was started without a distributed launcher, False where there was one, None if untold."""
    setup = log.setup
    if any(line.rank for line in log.lines) or log.passes("elastic/multiprocessing", "torch/distributed/run.py"):
        return False
    if setup.launcher in ("torchrun", "accelerate", "deepspeed", "slurm") or setup.processes is not None:
        return False
    if log.passes("llamafactory/cli.py", "llamafactory-cli"):
        return True
    if setup.launcher in ("python", "swift", "llamafactory"):
        return not setup.mentions(r"NPROC_PER_NODE|NNODES|FORCE_TORCHRUN|CUDA_VISIBLE_DEVICES=\d+,\d")
    return None


def empty_uses(log: FailureLog) -> Iterator[EmptyUse]:
    """The places where an operator was handed an empty parameter under ZeRO-3, each with its explanations."""
    on = zero3(log)
    if on is False:
        return
    if on is None and any(log.passes(part) for part in _SHARDED_OTHERWISE):
        return
    seen = False
    for error in log.errors_of("RuntimeError", "AssertionError", "ValueError", "IndexError"):
        embedding = _EMBEDDING.search(error.message) is not None
        if not embedding and not _NO_ELEMENTS.search(error.message):
            nought = _NOUGHT.search(error.message)
            if not nought or not (on or "(0)" in nought.group(0)):
                continue
        if "loading state_dict" in error.message or error.passes(*RESIZING, *INITIALIZING):
            continue
        seen = True
        yield EmptyUse(error, _causes(log, error, embedding, on is True))
    if not seen and (found := log.find(_EMBEDDING)):
        yield EmptyUse(found, _without_frames(log, True, on is True))


def _causes(log: FailureLog, error: LoggedError, embedding: bool, on: bool) -> Mapping[Use, Certainty]:
    if error.passes(*AUXILIARY):
        return {Use.AUXILIARY: Certainty.CERTAIN if on or embedding else Certainty.LIKELY}
    if any(_OTHER_MODELS.search(f"{frame.code} {frame.function}") for frame in error.all_frames):
        return {Use.OUTSIDE_ENGINE: Certainty.CERTAIN if on or embedding else Certainty.LIKELY}
    in_engine = error.passes(_ENGINE)
    direct = _is_direct(error)
    if in_engine:
        if direct or not embedding:
            return {
                Use.DIRECT: Certainty.LIKELY if not direct else Certainty.CERTAIN,
                Use.OUTSIDE_ENGINE: Certainty.POSSIBLE,
            }
        return {Use.OUTSIDE_ENGINE: Certainty.LIKELY, Use.DIRECT: Certainty.POSSIBLE}
    if direct and (on or not embedding):
        return {Use.DIRECT: Certainty.LIKELY if on else Certainty.POSSIBLE, Use.NO_LAUNCHER: Certainty.POSSIBLE}
    if error.passes(*_TRAINING) and (embedding or on):
        singly = started_singly(log)
        if singly is False:
            return {Use.OUTSIDE_ENGINE: Certainty.LIKELY, Use.NO_LAUNCHER: Certainty.POSSIBLE}
        return {
            Use.NO_LAUNCHER: Certainty.CERTAIN if singly and on else Certainty.LIKELY,
            Use.OUTSIDE_ENGINE: Certainty.POSSIBLE,
        }
    return _without_frames(log, embedding, on)


def _without_frames(log: FailureLog, embedding: bool, on: bool) -> Mapping[Use, Certainty]:
    if not embedding:
        return {Use.DIRECT: Certainty.LIKELY if on else Certainty.POSSIBLE, Use.OUTSIDE_ENGINE: Certainty.POSSIBLE}
    if log.find(_SERVING):
        return {Use.OUTSIDE_ENGINE: Certainty.POSSIBLE}
    singly = started_singly(log)
    if log.find(_AUXILIARY_IN_WORDS):
        return {Use.AUXILIARY: Certainty.LIKELY, Use.OUTSIDE_ENGINE: Certainty.POSSIBLE}
    if log.find(_OTHER_IN_WORDS) or log.setup.mentions(_OTHER_IN_SETUP):
        return {Use.OUTSIDE_ENGINE: Certainty.LIKELY, Use.NO_LAUNCHER: Certainty.POSSIBLE}
    if singly:
        return {Use.NO_LAUNCHER: Certainty.LIKELY, Use.OUTSIDE_ENGINE: Certainty.POSSIBLE}
    return {Use.OUTSIDE_ENGINE: Certainty.LIKELY, Use.NO_LAUNCHER: Certainty.POSSIBLE}


def _is_direct(error: LoggedError) -> bool:
    """True where the frame that called into torch is no layer of torch: it read the parameter itself."""
    for frame in reversed(error.frames):
        if "torch/nn/functional.py" in frame.path or "torch/_ops" in frame.path or "einops" in frame.path:
            continue
        if any(part in frame.path for part in _OF_TORCH):
            return False
        return _DIRECT_CODE.search(frame.code) is not None
    return False


def told_by(log: FailureLog, says: Pattern, *types: str) -> LoggedError | Found | None:
    """The first exception (of any of the types) that says it, or else the first line that does."""
    return next(log.errors_of(*types, says=says), None) or log.find(says)
