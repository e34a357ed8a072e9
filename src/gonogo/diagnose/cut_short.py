"""Tracebacks that were pasted without their last line: what is most often raised where they end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.cut import cut_in
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.role import Role
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.hazard import Hazard

_CURE = Text(
    "Look at the line that follows in the whole log; `gonogo explain {name}` says what to do if it is this",
    "请查看完整日志中的下一行；若确为此问题，`gonogo explain {name}` 说明如何解决",
)
_CONFIRM = Text("The traceback's last line, which is missing here", "调用栈的最后一行（此处缺失）")


def ended_where(log: FailureLog, hazards: Iterable[Hazard]) -> Iterator[Finding]:
    """The hazards at whose places a traceback without its last line ends; none where the log has another error."""
    if not log.cut or any(error.role is Role.ROOT for error in log.errors):
        return
    # Where the innermost frame was cut too, the call in the one above it says what it was.
    within = 1 if all(error.frames and error.frames[-1].code for error in log.cut) else 2
    for hazard in hazards:
        if not hazard.ends_at or (outside_training(log) and not getattr(hazard, "anywhere", False)):
            continue
        cut = cut_in(log, *hazard.ends_at, within=within)
        if cut is None or cut.innermost is None:
            continue
        place = cut.innermost
        yield hazard.log_finding(
            cut,
            Text(
                "The log ends at {file}, in {function}, before the line that names the error. This is what is most "
                "often raised there.",
                "日志在 {file} 的 {function} 处中断，没有给出异常的那一行。此处最常抛出的就是这个问题。",
            ).format(file=place.path.rpartition("/")[2], function=place.function or "?"),
            cure=_CURE.format(name=hazard.name),
            certainty=Certainty.POSSIBLE,
            confirm=_CONFIRM,
        )
