"""Log evidence of parameters that were still in flight when ZeRO-3 expected none."""

from collections.abc import Mapping
from enum import Enum

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty
from gonogo.hazards.zero3._zero3_in_log import find_cut_traceback, find_error_or_line

_INFLIGHT_PATTERN = Pattern(r"still have inflight params")
_RAISING_LINE_PATTERN = Pattern(r"^$|raise RuntimeError|inflight")
_INFLIGHT_STATUS_PATTERN = Pattern(r"\{'id': \d+, 'status': 'INFLIGHT'")
_TRACE_INVALIDATED_PATTERN = Pattern(r"Invalidate trace cache @ step")
_EVALUATION_COORDINATOR_PATTERN = Pattern(r"get_param_coordinator\(training=False\)")
_TRAINING_COORDINATOR_PATTERN = Pattern(r"get_param_coordinator\(training=True\)")
_EVALUATION_PATTERN = Pattern(
    r"(?i)evaluation_loop|\bevaluat(?:e|ion)\b|predict(?:ion)?_step|\.generate\(|generate_experience|_generate_sequence"
    r"|\bvalidat\w*|\bval_loop"
)


class InflightCause(Enum):
    """Why parameters are in flight; each member belongs to one hazard."""

    DYNAMIC = "modules run in another order than the recorded one"
    COORDINATORS = "a pass in evaluation mode left its prefetches to the other coordinator"


def find_inflight_error(log: FailureLog) -> tuple[LoggedError | LineMatch, Mapping[InflightCause, Certainty]] | None:
    """The error of parameters in flight and how certain each cause is, or None."""
    evidence = find_error_or_line(log, _INFLIGHT_PATTERN, "RuntimeError") or find_cut_traceback(
        log, "partitioned_param_coordinator.py", "reset_step", code=_RAISING_LINE_PATTERN
    )
    if evidence is None:
        stuck = next(log.errors_of("AssertionError", says=_INFLIGHT_STATUS_PATTERN), None)
        if stuck is None:
            return None
        if not log.find(_EVALUATION_PATTERN):
            return stuck, {InflightCause.COORDINATORS: Certainty.POSSIBLE, InflightCause.DYNAMIC: Certainty.POSSIBLE}
        return stuck, {InflightCause.COORDINATORS: Certainty.LIKELY, InflightCause.DYNAMIC: Certainty.POSSIBLE}
    release = log.setup.release_numbers("deepspeed")
    dynamic = {InflightCause.DYNAMIC: Certainty.LIKELY, InflightCause.COORDINATORS: Certainty.POSSIBLE}
    coordinators = {InflightCause.COORDINATORS: Certainty.LIKELY, InflightCause.DYNAMIC: Certainty.POSSIBLE}
    if release is not None and release >= (0, 17):
        return evidence, {InflightCause.DYNAMIC: Certainty.LIKELY}
    if log.find(_EVALUATION_COORDINATOR_PATTERN) and not log.find(_TRACE_INVALIDATED_PATTERN):
        return evidence, coordinators
    if log.find(_TRACE_INVALIDATED_PATTERN) or log.find(_TRAINING_COORDINATOR_PATTERN):
        return evidence, dynamic
    return evidence, coordinators if log.find(_EVALUATION_PATTERN) else dynamic
