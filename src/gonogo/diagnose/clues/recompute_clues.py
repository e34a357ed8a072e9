"""Gradient checkpointing: which part of the forward differs when it is recomputed, and whose checkpointing it is."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.failure.settings import settings_of
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import translated
from gonogo.finding.failure import FailureFacts
from gonogo.finding.log_answer import Clue, CluePlace

_TENSOR_COUNTS_PATTERN = Pattern(r"A different number of tensors was saved during the original forward")
# The random state that fused attention saves for its dropout: int64 with cuDNN, uint64 with flash.
_ATTENTION_STATE_PATTERN = lazy_compile(
    r"saved metadata: \{'shape': torch\.Size\(\[[\d, ]*\]\), 'dtype': torch\.(u?)int64[^\n]*\n"
    r"[^\n]*recomputed metadata: \{'shape': torch\.Size\(\[[\d, ]*\]\), 'dtype': torch\.(u?)int64"
)
_MIXTURE_OF_EXPERTS_PATTERN = lazy_compile(
    r"(?i)(?:^|[^a-z])moe(?:[^a-z]|$)|-A\d{1,3}(?:\.\d)?B\b|mixtral|deepseek-?v[23]|gpt-oss|\d+x\d+b\b"
)
_BACKWARD_TWICE_PATTERN = Pattern(r"Trying to backward through the graph a second time")
_CHECKPOINT_FILE_PATTERN = lazy_compile(r"checkpoint[^/]*\.py$")


def recompute_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """What activation checkpointing's recomputation did differently, by the message, frames and settings."""
    raised = facts.chain[-1] if facts.chain else None
    if raised is None:
        return
    place = CluePlace(raised.log, raised.line)
    text = raised.message.text[:6000]
    state = _ATTENTION_STATE_PATTERN.search(text)
    if state is not None and state.group(1) != state.group(2):
        yield Clue(
            translated(
                "The tensors that differ are those that attention saves (its random state is {saved} in the forward "
                "and {recomputed} in the recomputation): scaled_dot_product_attention chose another backend the "
                "second time (flash, cuDNN or memory-efficient). Set one backend for both (torch.backends.cuda."
                "enable_cudnn_sdp(False), or sdpa_kernel around the whole step), or another attention implementation"
            ).format(saved=f"{state.group(1)}int64", recomputed=f"{state.group(2)}int64"),
            (place,),
        )
    if _TENSOR_COUNTS_PATTERN.search(text):
        experts = next((one for one in settings_of(log) if _MIXTURE_OF_EXPERTS_PATTERN.search(one.value[:200])), None)
        if experts is not None:
            yield Clue(
                translated(
                    "{name} is {value}, a mixture of experts: if its router selects other experts in the "
                    "recomputation (kernels that are not deterministic), other experts run, which save another "
                    "number of tensors. Exclude the MoE block from checkpointing or keep the router's choice; to "
                    "check, run once with deterministic attention, or with checkpointing off"
                ).format(name=experts.name, value=experts.value[:80]),
                (place, *((experts.place,) if experts.place is not None else ())),
            )
    own = next(
        (
            frame
            for frame in raised.frames
            if frame.function == "backward"
            and frame.package not in ("", "torch", "accelerate", "deepspeed")
            and _CHECKPOINT_FILE_PATTERN.search(frame.path.replace("\\", "/"))
        ),
        None,
    )
    if own is not None and _BACKWARD_TWICE_PATTERN.search(text):
        yield Clue(
            translated(
                "The backward that fails is that of {package}'s own gradient checkpointing, which runs a part of the "
                "forward again: it does not fit this model's forward or the release of transformers (a tensor that "
                "all layers share, such as an encoder's output or a mask, is outside of the part). Use torch's "
                "checkpointing (gradient_checkpointing_enable, use_gradient_checkpointing=True) or turn it off, or "
                "use another release of {package}"
            ).format(package=own.package),
            (place,),
            secondary=("backward-twice-through-graph",),
        )
