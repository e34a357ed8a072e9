"""All clues about a failure, the most informative first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gonogo.diagnose.clues.keys import engine_name_clues, state_dict_key_clues
from gonogo.diagnose.clues.memory_clues import memory_size_clues
from gonogo.diagnose.clues.nccl_clues import nccl_crash_clues, nccl_reason_clues
from gonogo.diagnose.clues.numbers import number_clues
from gonogo.diagnose.clues.parts import (
    empty_parameter_clues,
    enabled_feature_clues,
    mixed_dtensor_clues,
    no_shard_clues,
    sliced_shard_clues,
    wake_up_clues,
    weight_sync_clues,
)
from gonogo.diagnose.clues.ranks import rank_clues
from gonogo.diagnose.clues.recompute_clues import recompute_clues
from gonogo.diagnose.clues.setting_clues import (
    ignored_setting_clues,
    named_class_clues,
    named_setting_clues,
    offload_clues,
    skipped_part_clues,
    warned_before_clues,
)
from gonogo.diagnose.clues.stack_clues import stack_clues
from gonogo.diagnose.clues.symbols import version_mismatch_clues
from gonogo.diagnose.clues.training_numbers import training_number_clues
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.stall import is_timeout_message
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Text, translated
from gonogo.finding.failure import FailureFacts
from gonogo.finding.log_answer import Clue, CluePlace

_ASYNC_ERROR_PATTERN = Pattern(r"CUDA (?:kernel )?errors might be asynchronously reported")
_SIGKILL_PATTERN = Pattern(r"exitcode\s*: -9|\bSIGKILL\b|return code = -9|forcefully exiting via Signals\.SIGKILL")
_OOM_KILLER_PATTERN = Pattern(
    r"Out of memory: Kill|oom-kill|OOM[- ]?[Kk]illed|OUT_OF_ME|killed by the cgroup|Ray killed"
)
_CUDA_ERROR_PATTERN = Pattern(r"CUDA error: |AcceleratorError")


def misleading_order_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """Errors that are shown late or follow from others: asynchronous CUDA errors, SIGKILL after an exception."""
    raised = facts.chain[-1] if facts.chain else None
    if raised is not None and _CUDA_ERROR_PATTERN.search(raised.message.text) and log.says(_ASYNC_ERROR_PATTERN):
        yield Clue(
            translated(
                "CUDA reports such an error at a later call: the line shown may not be where it occurred. Run "
                "once with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer"
            ),
            (CluePlace(raised.log, raised.line),),
        )
    by_itself = any(error.role is Role.ROOT and not is_timeout_message(error.message) for error in log.errors)
    if raised is None or not by_itself or log.find(_OOM_KILLER_PATTERN) is not None:
        return
    if (killed := log.find(_SIGKILL_PATTERN)) is not None:
        yield Clue(
            translated(
                "After a failure launchers send SIGKILL (signal 9) to the ranks that still run, so the cause "
                "is {type}, which the run itself raised"
            ).format(type=raised.type),
            (
                CluePlace(killed.line.path, killed.line.number, killed.text.strip()[:200]),
                CluePlace(raised.log, raised.line),
            ),
            secondary=("cpu-ram-oom-killed",),
        )


_NATIVE_EXCEPTION_PATTERN = Pattern(r"^.{0,80}?\bwhat\(\): +(?P<said>\S.{3,300})")


def native_exception_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """A C++ exception that ended a process, in a log without a Python exception."""
    found = None if facts.chain else log.find(_NATIVE_EXCEPTION_PATTERN)
    if found is None:
        return
    yield Clue(
        translated(
            "an exception of native code ended the process: {said}{late}. Look in the log of that process for what ran "
            "just before (an engine that wakes up or sleeps, a weight update)"
        ).format(
            said=str(found.match.groupdict()["said"] or "").strip(),
            late=translated(" (CUDA reports it late: run once with CUDA_LAUNCH_BLOCKING=1)")
            if "CUDA error" in found.text
            else Text("", ""),
        ),
        (CluePlace(found.line.path, found.line.number, found.text.strip()[:200]),),
        decides=True,
    )


MAX_CLUES = 8
_CLUE_FINDERS: tuple[Callable[[FailureLog, FailureFacts], Iterator[Clue]], ...] = (
    *(
        rank_clues,
        stack_clues,
        training_number_clues,
        nccl_reason_clues,
        nccl_crash_clues,
        memory_size_clues,
        state_dict_key_clues,
        engine_name_clues,
        skipped_part_clues,
        version_mismatch_clues,
        sliced_shard_clues,
        empty_parameter_clues,
        number_clues,
        ignored_setting_clues,
        named_setting_clues,
        offload_clues,
        named_class_clues,
        enabled_feature_clues,
        warned_before_clues,
    ),
    *(mixed_dtensor_clues, no_shard_clues, weight_sync_clues, wake_up_clues, recompute_clues, misleading_order_clues),
    native_exception_clues,
)


def find_clues(log: FailureLog, facts: FailureFacts) -> tuple[Clue, ...]:
    """The clues of all finders without duplicates, at most :data:`MAX_CLUES`."""
    found: dict[str, Clue] = {}
    for rule in _CLUE_FINDERS:
        for clue in rule(log, facts):
            found.setdefault(clue.text.en, clue)
    return tuple(found.values())[:MAX_CLUES]
