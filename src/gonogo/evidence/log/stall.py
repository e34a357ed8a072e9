"""Detects ranks that waited for each other in vain: collectives that timed out, a log that ends at a sync point."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache

import msgspec

from gonogo.evidence.log.context import is_outside_training, is_under_zero3, uses_fsdp
from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.role import Role
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty

STALL_WORDS = (
    "Timeout", "Timed out", "imeout after", "WorkNCCL", "WorkHCCL", "Invalidate trace cache", "TorchBackend",
    "isagreement", "stuck", " hang", "Hang", " hung", "freez", "卡住", "卡死",
)  # fmt: skip
"""Literals of lines that reveal a stall; ``log_words`` of the hazards that look for one."""
GATHER_OPERATIONS = ("_ALLGATHER_BASE", "ALLGATHER", "ALLGATHER_BASE", "ALLGATHER_COALESCED", "_REDUCE_SCATTER_BASE")
"""The collectives with which ZeRO-3 gathers parameters and scatters gradients."""
MAX_EARLY_SEQUENCE_NUMBER = 20
"""Below this sequence number a collective is early: training soon counts hundreds of them."""

_COLLECTIVE_TIMEOUT_PATTERN = Pattern(
    r"collective operation timeout|Watchdog caught co"
    r"|Work[A-Z]CCL\(.*\) (?:timed out in blocking wait|ran for \d+ millisec)"
)
_WORK_PATTERN = Pattern(
    r"(?:SeqNum=(\d{1,12}), )?OpType=(\w{1,40})(?:, (?:NumelIn=(\d{1,15})|TensorShape=\[([\d, ]{0,80})\]))?"
)
_WATCHDOG_RANK_PATTERN = Pattern(r"\[(?:Rank|rank) ?(\d{1,5})\] (?:Watchdog|Work)|Rank (\d{1,5})\] ")
_STORE_TIMEOUT_PATTERN = Pattern(
    r"via c10d key-value store by key .* got error: |[Ss]ocket [Tt]imeout|[Ww]ait timeout after \d+ ?ms"
    r"|Timed out waiting \d+ ?ms for (?:recv|send) operation|Timeout waiting for key: default_pg"
    r"|gloo/.*Read timeout"
)
_RANK_DISAGREEMENT_PATTERN = Pattern(r"[Dd]isagreement (?:on list length )?between rank ?0 and rank")
"""ZeRO-3's message when the ranks turn out to have fetched different parameters."""
_COLLECTIVE_MISMATCH_PATTERN = Pattern(
    r"Detected mismatch between collectives on ranks.*OpType=_?(?:ALLGATHER|REDUCE_SCATTER)"
    r".*TensorShape=\[.*TensorShape="
)
"""torch's message for ranks that gather different tensors, under TORCH_DISTRIBUTED_DEBUG=DETAIL."""
_HANG_WORD_PATTERN = Pattern(r"(?i)\b(?:hangs?|hung|stuck|freezes)\b|卡住|卡死")
"""A hanging run prints nothing: whoever saved its log may have noted the hang there."""
_TRACE_CACHE_PATTERN = Pattern(r"Invalidate trace cache")
_DISTRIBUTED_PATTERN = (
    r"(?i)nccl|deepspeed|torchrun|\bddp\b|fsdp|distributed|accelerate|zero[-_ ]?[23]|num_processes|nproc|\brank\b"
)
_DEVICE_FAULT_PATTERN = Pattern(
    r"terminated with exception: (?:\[.*?\] )?CUDA error|CUDA error: (?:an illegal|device-side|unspecified"
    r"|uncorrectable|misal)"
    r"|CUDA out of memory|uncorrectable ECC|Xid \d+"
)


class CollectiveTimeout(msgspec.Struct, frozen=True):
    """A collective that timed out on a rank; fields that the line doesn't state are None."""

    found: LineMatch
    rank: int | None
    sequence: int | None
    operation: str | None
    numel: int | None
    """Elements of the rank's input tensor."""


class Stall(msgspec.Struct, frozen=True):
    """Ranks that waited in vain. ``evidence`` is the line that shows it: the first time-out, if there is one."""

    evidence: LineMatch | LogLine
    time_outs: tuple[CollectiveTimeout, ...]
    by_store: LineMatch | None
    """The line that shows ranks waiting for rank 0's key in the store, or in Gloo: before the first collective."""
    another_failure: bool
    """True if there is an error besides time-outs: the ranks may have waited for a dead one."""
    distributed: bool
    """Whether the log or the setup shows more than one process at all."""
    zero3: bool | None
    """Whether the run uses ZeRO-3, as far as the log and the setup show."""
    trace_cache: LineMatch | None
    """ZeRO-3's warning that a step ran its modules in a different order than the one before."""
    disagreed: LineMatch | None = None
    """The line in which ZeRO-3, or torch's debug mode, reports that the ranks gather different parameters."""

    @property
    def has_diverged(self) -> bool:
        """True if ranks were in different collectives: the same sequence number with another operation or size."""
        if self.disagreed is not None:
            return True
        seen: dict[int, dict[int | None, tuple[str | None, int | None]]] = {}
        for one in self.time_outs:
            if one.sequence is not None:
                seen.setdefault(one.sequence, {}).setdefault(one.rank, (one.operation, one.numel))
        return any(len(set(works.values())) > 1 for works in seen.values())

    @property
    def first_sequence(self) -> int | None:
        """The lowest sequence number of a collective that timed out."""
        return min((one.sequence for one in self.time_outs if one.sequence is not None), default=None)

    @property
    def is_early(self) -> bool:
        """True if only the first few collectives had run, or none."""
        if not self.time_outs:
            return self.by_store is not None
        return self.first_sequence is not None and self.first_sequence <= MAX_EARLY_SEQUENCE_NUMBER

    @property
    def is_in_gather(self) -> bool:
        """True if one of the collectives that timed out is one that ZeRO-3 uses to gather or scatter."""
        return self.disagreed is not None or any(one.operation in GATHER_OPERATIONS for one in self.time_outs)

    @property
    def gathers_parameters(self) -> bool:
        """True if the ranks may have been waiting in a gather of ZeRO-3."""
        return self.zero3 is not False and bool(self.zero3 or self.trace_cache or self.is_in_gather)

    @property
    def line(self) -> LogLine:
        """The line of the evidence."""
        return self.evidence.line if isinstance(self.evidence, LineMatch) else self.evidence

    def cap_certainty(self, certainty: Certainty) -> Certainty:
        """``certainty``, but POSSIBLE at most if the ranks may have waited because of another failure."""
        return Certainty.POSSIBLE if self.another_failure or not self.distributed else certainty


@lru_cache(maxsize=1)
def find_stall(log: FailureLog) -> Stall | None:
    """The stall that a training log shows, or None."""
    time_outs = tuple(_collective_timeouts(log))
    by_store = log.find(_STORE_TIMEOUT_PATTERN)
    of_zero3 = log.find(_RANK_DISAGREEMENT_PATTERN)
    disagreed = of_zero3 or (None if uses_fsdp(log) else log.find(_COLLECTIVE_MISMATCH_PATTERN))
    evidence = disagreed or (
        time_outs[0].found if time_outs else by_store or log.find(_HANG_WORD_PATTERN) or _trace_cache_warning(log)
    )
    if evidence is None or is_outside_training(log):
        return None
    zero3 = True if of_zero3 else is_under_zero3(log)
    if zero3 is None and uses_fsdp(log):
        zero3 = False
    distributed = bool(time_outs or zero3 or find_in_log_or_setup(log, _DISTRIBUTED_PATTERN))
    cache = log.find(_TRACE_CACHE_PATTERN)
    return Stall(evidence, time_outs, by_store, _has_other_failure(log), distributed, zero3, cache, disagreed)


def find_in_log_or_setup(log: FailureLog, pattern: str) -> LineMatch | bool:
    """The first log line that contains a pattern, True if only the setup contains it, else False."""
    return log.find(_compile_pattern(pattern)) or log.setup.mentions(pattern)


@cache
def _compile_pattern(pattern: str) -> Pattern:
    return Pattern(pattern)


def _trace_cache_warning(log: FailureLog) -> LineMatch | None:
    """ZeRO-3's warning about a changed module order, if nothing follows it: on its own it is harmless."""
    last = next(iter([*log.find_all(_TRACE_CACHE_PATTERN)][-1:]), None)
    return last if last is not None and not log.errors and len(log.lines_after(last.line, 6)) < 6 else None


def is_timeout_message(message: str) -> bool:
    """True for an exception message about a wait for other ranks, or about their disagreement."""
    return any(
        words.search(message)
        for words in (
            _COLLECTIVE_TIMEOUT_PATTERN,
            _STORE_TIMEOUT_PATTERN,
            _RANK_DISAGREEMENT_PATTERN,
            _COLLECTIVE_MISMATCH_PATTERN,
        )
    )


def _collective_timeouts(log: FailureLog) -> Iterator[CollectiveTimeout]:
    for found in log.find_all(_COLLECTIVE_TIMEOUT_PATTERN):
        work = _WORK_PATTERN.search(found.text)
        rank = _WATCHDOG_RANK_PATTERN.search(found.text)
        digits = next((group for group in rank.groups() if group), None) if rank else None
        sequence, operation, numel, shape = work.groups() if work else (None,) * 4
        yield CollectiveTimeout(
            found,
            int(digits) if digits else found.line.rank,
            int(sequence) if sequence else None,
            operation,
            int(numel) if numel else _element_count(shape),
        )


def _element_count(shape: str | None) -> int | None:
    if shape is None:
        return None
    product = 1
    for size in shape.replace(",", " ").split():
        product *= int(size)
    return product


def _has_other_failure(log: FailureLog) -> bool:
    if log.find(_DEVICE_FAULT_PATTERN) is not None:
        return True
    return any(error.role is Role.ROOT and not is_timeout_message(error.message) for error in log.errors)
