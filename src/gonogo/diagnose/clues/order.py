"""What the order of lines tells: CUDA's late reports, and a rank that was killed after another had failed."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.stall import is_time_out
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Text
from gonogo.finding.failure import FailureFacts
from gonogo.finding.log_answer import Clue, CluePlace

_LATE = Pattern(r"CUDA (?:kernel )?errors might be asynchronously reported")
_KILLED = Pattern(r"exitcode\s*: -9|\bSIGKILL\b|return code = -9|forcefully exiting via Signals\.SIGKILL")
_BY_KERNEL = Pattern(r"Out of memory: Kill|oom-kill|OOM[- ]?[Kk]illed|OUT_OF_ME|killed by the cgroup|Ray killed")
_CUDA_ERROR = Pattern(r"CUDA error: |AcceleratorError")


def of_order(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """An asynchronous error's line is not its place; a kill beside another rank's exception follows from it."""
    raised = facts.chain[-1] if facts.chain else None
    if raised is not None and _CUDA_ERROR.search(raised.message.text) and log.says(_LATE):
        yield Clue(
            Text(
                "CUDA reports such an error at a later call: the line shown need not be where it arose. Run once with "
                "CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer",
                "CUDA 会在之后的调用中才报告这种错误：所示的行不一定是出错处。请用 CUDA_LAUNCH_BLOCKING=1 运行一次，或"
                "使用 "
                "compute-sanitizer",
            ),
            (CluePlace(raised.log, raised.line),),
        )
    by_itself = any(error.role is Role.ROOT and not is_time_out(error.message) for error in log.errors)
    if raised is None or not by_itself or log.find(_BY_KERNEL) is not None:
        return
    if (killed := log.find(_KILLED)) is not None:
        yield Clue(
            Text(
                "The kill (signal 9) is what a launcher does to ranks that outlive a failure: {type} was raised in the "
                "run "
                "itself",
                "被杀死（信号 9）是启动器对失败后仍在运行的 rank 所做的：{type} 才是运行自身抛出的",
            ).format(type=raised.type),
            (
                CluePlace(killed.line.path, killed.line.number, killed.text.strip()[:200]),
                CluePlace(raised.log, raised.line),
            ),
            secondary=("cpu-ram-oom-killed",),
        )
