"""Logs that were pasted in part: the most frequent causes of a traceback without its last line, or of a lone line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from gonogo.evidence.log.context import is_outside_training, is_under_zero3
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty, Finding, Severity, Text, translated
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import hazard_of, hazards_possible_in_cut_log

_CURE = translated("Look at the full log; if this is the cause, `gonogo explain {name}` describes the fix")
_MISSING_LAST_LINE = translated("The traceback's last line, which is missing here")
_MISSING_CONTEXT = translated(
    "The lines around it, which are missing here: the traceback above, or the message's first line"
)
_LOG_ENDS_AT = translated(
    "The log ends at {file}, in {function}, before the line that names the error. This is the error most "
    "often raised there."
)
_REMAINING_LINE_CAUSE = translated(
    "The log is truncated: this line usually comes with this failure, but the line that would confirm it is missing."
)
_SIMILAR_FRAMES_CAUSE = translated(
    "The log ends before the line that names the error. Of all known failures, this one's traceback "
    "matches the remaining frames best."
)
CUT_LOG_CAUSES = (_REMAINING_LINE_CAUSE, _SIMILAR_FRAMES_CAUSE)
"""The cause texts of findings that a truncated log only suggests."""
_MAX_LINES = 200
"""At most this many lines that may accompany a failure are matched against the hazards."""
_TORCH_SHARDING_PATTERN = Pattern(
    r"torch/distributed/(?:tensor|fsdp|_composable)|\bDTensor\b|(?i:\bfsdp2?\b)|fully_shard"
)
_NCCL_WARNING_PATTERN = Pattern(r"NCCL WARN .*(?:failed|[Ee]rror|[Cc]annot)")
_NCCL_SUMMARY_PATTERN = Pattern(r"unhandled (?:system|cuda) error|NCCL_ERROR_SYSTEM_ERROR|NCCL Error \d")
"""How callers of NCCL report any of its failures; it says nothing new if NCCL's own reason is in the log."""
_MAX_OUTER_FRAMES = 4
"""How many frames, from the innermost one, are tried if the innermost matches nothing: a log may be cut anywhere."""


def findings_in_cut_log(log: FailureLog) -> Iterator[tuple[Hazard, Finding]]:
    """Possible hazards for a truncated log, each once: by its last frame, then by single lines.

    Within each, the most frequent hazard comes first. None if the log has an exception with its frames or with a
    message of several lines: in that case the hazards have already seen all there is.
    """
    if any(error.role is Role.ROOT and (error.frames or "\n" in error.message) for error in log.errors):
        return
    requested = list(filter(_is_applicable_to(log), hazards_possible_in_cut_log(log)))
    if not requested:
        return
    from gonogo.judge.similar.find import thread_counts_by_hazard

    threads = thread_counts_by_hazard()
    requested.sort(key=lambda hazard: -threads[hazard.name])
    hazards = {hazard.name: hazard for hazard in requested}
    for finding in (*_findings_by_last_frame(log, requested), *_findings_by_remaining_lines(log, requested)):
        if (hazard := hazards.pop(finding.hazard, None)) is not None:
            yield hazard, finding


def findings_by_similar_frames(log: FailureLog) -> Iterator[tuple[Hazard, Finding]]:
    """The hazards whose test cases share most of the remaining frames, if truncated tracebacks are all there is."""
    if not log.truncated_errors or any(error.role is Role.ROOT for error in log.errors):
        return
    from gonogo.judge.similar.find import hazards_with_similar_cases

    for hazard in filter(_is_applicable_to(log), filter(None, map(hazard_of, hazards_with_similar_cases(log)))):
        yield hazard, _possible_finding(hazard, log.truncated_errors[0], _SIMILAR_FRAMES_CAUSE, _MISSING_LAST_LINE)


def _is_applicable_to(log: FailureLog) -> Callable[[Hazard], bool]:
    outside = is_outside_training(log)
    # Don't suggest ZeRO-3 hazards for a log in which another engine shards.
    no_zero3 = log.says(_TORCH_SHARDING_PATTERN) and not is_under_zero3(log)

    def is_applicable(hazard: Hazard) -> bool:
        """Whether the hazard's error may be what a truncated log lacks."""
        if no_zero3 and hazard.name.startswith("zero3-"):
            return False
        return not outside or getattr(hazard, "anywhere", False)

    return is_applicable


def _findings_by_last_frame(log: FailureLog, hazards: Iterable[Hazard]) -> Iterator[Finding]:
    """Hazards whose error is raised where the truncated traceback ends; none if the log has another error."""
    if not log.truncated_errors or any(error.role is Role.ROOT for error in log.errors):
        return
    # If the innermost frame lost its code line, use the call in the frame above it too.
    innermost = 1 if all(error.frames and error.frames[-1].code for error in log.truncated_errors) else 2
    for within in (innermost, _MAX_OUTER_FRAMES):
        found = list(_findings_by_frames_within(log, hazards, within))
        yield from found
        if found:
            return


def _findings_by_frames_within(log: FailureLog, hazards: Iterable[Hazard], max_frames: int) -> Iterator[Finding]:
    for hazard in hazards:
        cut = find_truncated_error(log, *hazard.ends_at, max_frames=max_frames) if hazard.ends_at else None
        if cut is None or cut.innermost is None:
            continue
        place = cut.innermost
        where = _LOG_ENDS_AT.format(file=place.path.rpartition("/")[2], function=place.function or "?")
        yield _possible_finding(hazard, cut, where, _MISSING_LAST_LINE)


def _findings_by_remaining_lines(log: FailureLog, hazards: Iterable[Hazard]) -> Iterator[Finding]:
    """The hazards that usually come with one of the lines that are left."""
    traces = "|".join(re.escape(trace) for hazard in hazards for trace in hazard.traces)
    lines = tuple(islice(log.find_all(Pattern(traces)), _MAX_LINES)) if traces else ()
    if log.says(_NCCL_WARNING_PATTERN):
        lines = tuple(line for line in lines if not _NCCL_SUMMARY_PATTERN.search(line.text))
    for hazard in hazards if lines else ():
        line = next((line for line in lines if any(trace in line.text for trace in hazard.traces)), None)
        if line is not None:
            yield _possible_finding(hazard, line, _REMAINING_LINE_CAUSE)


def _possible_finding(
    hazard: Hazard, evidence: LoggedError | LineMatch, cause: Text, confirm: Text = _MISSING_CONTEXT
) -> Finding:
    return hazard.log_finding(
        evidence,
        cause,
        cure=_CURE.format(name=hazard.name),
        certainty=Certainty.POSSIBLE,
        severity=Severity.ERROR,
        confirm=confirm,
    )
