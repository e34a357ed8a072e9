"""Recognise that ranks waited for each other in vain: the time-outs of collectives, and a reporter's own words."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.failure_log import FailureLog, Found
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.role import Role
from gonogo.evidence.patterns import Pattern

STALL_WORDS = (
    "stuck", " hang", "Hang", " hung", "freez", "froze", "eadlock", "卡住", "卡死", "卡在", "挂起", "死锁",
    "无响应", "没有反应", "不动", "超时", "卡主", "停住", "一直等待", "没有进展", "无法完成", "imeout after",
    "fails after", "longer than", "exceed", "n't finish", "not finish", "n't proceed", "not proceed", "n't return",
    "not return", "n't terminate", "not terminate", "n't continue", "not continue", "n't done", "not done",
    "no progress", "Timeout", "Timed out", "WorkNCCL", "WorkHCCL", "Invalidate trace cache",
    "exhausted inputs", "TorchBackend",
)  # fmt: skip
"""What a log says of a stall; ``log_words`` of the hazards that look for one."""

_TIME_OUT = Pattern(
    r"collective operation timeout|Work[A-Z]CCL\(.*\) (?:timed out in blocking wait|ran for \d+ millisec)"
)
_WORK = Pattern(
    r"(?:SeqNum=(\d{1,12}), )?OpType=(\w{1,40})(?:, (?:NumelIn=(\d{1,15})|TensorShape=\[([\d, ]{0,80})\]))?"
)
_RANK = Pattern(r"\[(?:Rank|rank) ?(\d{1,5})\] (?:Watchdog|Work)|Rank (\d{1,5})\] ")
_STORE_TIME_OUT = Pattern(
    r"via c10d key-value store by key .* got error: |[Ss]ocket [Tt]imeout|[Ww]ait timeout after \d+ ?ms"
    r"|Timed out waiting \d+ ?ms for (?:recv|send) operation|Timeout waiting for key: default_pg"
    r"|(?i:\btime-?outs? after \d+ ?min|fails after \d+ ?min|\b(?:longer than|exceed(?:s|ed)?) \d+ ?(?:min"
    r"|sec)(?:ute|ond)?s?\b)"
    r"|gloo/.*Read timeout"
    r"|(?i:\bnccl (?:\w+ ){0,3}(?:time-?out|timed out))|(?i:nccl|通信|通讯).{0,10}超时"
)
_SAYS_IT_STALLS = Pattern(
    r"(?i)\b(?:hang(?:s|ing|ed)?|hung|stuck|frozen|freez(?:e|es|ing)|deadlock(?:s|ed)?|does(?:n't| not) (?:move"
    r"|progress|finish|return|terminate|proceed|continue)|never (?:finish(?:es|ed)?|returns?|ends?|completes?)"
    r"|is(?:n't| not) done|no progress)\b"
    r"|卡住|卡死|卡在|挂起|死锁|无响应|没有反应|不动了|一直不动|卡主|停住|一直等待|没有进展|无法完成"
)
_TRACE_CACHE = Pattern(r"Invalidate trace cache")
_DEVICE_FAULT = Pattern(
    r"terminated with exception: (?:\[.*?\] )?CUDA error|CUDA error: (?:an illegal|device-side|unspecified"
    r"|uncorrectable|misal)"
    r"|CUDA out of memory|uncorrectable ECC|Xid \d+"
)


class TimedOut(msgspec.Struct, frozen=True):
    """A collective that timed out on a rank; what the line doesn't tell is None."""

    found: Found
    rank: int | None
    sequence: int | None
    operation: str | None
    numel: int | None


class Stall(msgspec.Struct, frozen=True):
    """That ranks waited. ``evidence`` is the line that says so; without ``time_outs`` it is the reporter's sentence."""

    evidence: Found | LogLine
    time_outs: tuple[TimedOut, ...]
    by_store: Found | None
    """Where the ranks waited for the first rank's key in the store, or in Gloo: before the first collective."""
    another_failure: bool
    """True where an error stands beside it that is no time-out: the ranks may have waited for a dead one."""

    @property
    def diverged(self) -> bool:
        """True where ranks stood in different collectives: the same number with another operation or size."""
        seen: dict[int, dict[int | None, tuple[str | None, int | None]]] = {}
        for one in self.time_outs:
            if one.sequence is not None:
                seen.setdefault(one.sequence, {}).setdefault(one.rank, (one.operation, one.numel))
        return any(len(set(works.values())) > 1 for works in seen.values())

    @property
    def first_sequence(self) -> int | None:
        """The lowest number of a collective that timed out."""
        return min((one.sequence for one in self.time_outs if one.sequence is not None), default=None)

    def in_operation(self, *operations: str) -> bool:
        """True where a collective of that kind timed out."""
        return any(one.operation in operations for one in self.time_outs)


def stall_of(log: FailureLog) -> Stall | None:
    """The stall that a training log tells of, or None."""
    time_outs = tuple(_time_outs(log))
    by_store = log.find(_STORE_TIME_OUT)
    evidence = time_outs[0].found if time_outs else by_store or log.find(_SAYS_IT_STALLS) or _ends_on_trace(log)
    if evidence is None or outside_training(log):
        return None
    return Stall(evidence, time_outs, by_store, _another_failure(log))


def _ends_on_trace(log: FailureLog) -> Found | None:
    """ZeRO-3's notice of another order of modules, where nothing comes after it: by itself it is harmless."""
    last = next(iter([*log.find_all(_TRACE_CACHE)][-1:]), None)
    return last if last is not None and not log.errors and len(log.lines_after(last.line, 6)) < 6 else None


def says_it_stalls(log: FailureLog) -> Found | None:
    """The reporter's sentence that the run stands still, or None."""
    return log.find(_SAYS_IT_STALLS)


def is_time_out(message: str) -> bool:
    """True for an exception's words that tell of a wait for other ranks."""
    return _TIME_OUT.search(message) is not None or _STORE_TIME_OUT.search(message) is not None


def _time_outs(log: FailureLog) -> Iterator[TimedOut]:
    for found in log.find_all(_TIME_OUT):
        work = _WORK.search(found.text)
        rank = _RANK.search(found.text)
        said = next((group for group in rank.groups() if group), None) if rank else None
        sequence, operation, numel, shape = work.groups() if work else (None,) * 4
        yield TimedOut(
            found,
            int(said) if said else found.line.rank,
            int(sequence) if sequence else None,
            operation,
            int(numel) if numel else _product(shape),
        )


def _product(shape: str | None) -> int | None:
    if shape is None:
        return None
    product = 1
    for size in shape.replace(",", " ").split():
        product *= int(size)
    return product


def _another_failure(log: FailureLog) -> bool:
    if log.find(_DEVICE_FAULT) is not None:
        return True
    return any(error.role is Role.ROOT and not is_time_out(error.message) for error in log.errors)
