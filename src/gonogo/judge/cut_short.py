"""Logs that were pasted in part: what most often stands behind a traceback without its last line, or a line alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from gonogo.evidence.log.context import outside_training, under_zero3
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty, Finding, Text, translated
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
"""Causes of findings that a cut log only suggests."""
_MAX_LINES = 200
"""Lines that may stand beside the one that names a failure, each of which is held against all hazards."""
_TORCH_SHARDING_PATTERN = Pattern(
    r"torch/distributed/(?:tensor|fsdp|_composable)|\bDTensor\b|(?i:\bfsdp2?\b)|fully_shard"
)
_NCCL_WARNING_PATTERN = Pattern(r"NCCL WARN .*(?:failed|[Ee]rror|[Cc]annot)")
_NCCL_SUMMARY = Pattern(r"unhandled (?:system|cuda) error|NCCL_ERROR_SYSTEM_ERROR|NCCL Error \d")
"""What NCCL's callers say of any of its failures, which tells nothing where NCCL's own reason stands in the log."""
_MAX_OUTER_FRAMES = 4
"""How many frames from the innermost one are looked at where that tells nothing: a log may be cut anywhere."""


def findings_in_cut_log(log: FailureLog) -> Iterator[tuple[Hazard, Finding]]:
    """What a log that was cut may be of, each hazard once, the most frequent first, and a place before a lone line.

    Nothing where the log has an exception with its frames, or with more than one line of its message: what can be
    known of that the hazards have looked for.
    """
    if any(error.role is Role.ROOT and (error.frames or "\n" in error.message) for error in log.errors):
        return
    asked = list(filter(_is_applicable_to(log), hazards_possible_in_cut_log(log)))
    if not asked:
        return
    from gonogo.judge.similar.find import thread_counts_by_hazard

    threads = thread_counts_by_hazard()
    asked.sort(key=lambda hazard: -threads[hazard.name])
    hazards = {hazard.name: hazard for hazard in asked}
    for finding in (*_findings_by_last_frame(log, asked), *_findings_by_remaining_lines(log, asked)):
        if (hazard := hazards.pop(finding.hazard, None)) is not None:
            yield hazard, finding


def findings_by_similar_frames(log: FailureLog) -> Iterator[tuple[Hazard, Finding]]:
    """The hazards whose own cases have most of the frames that are left, where nothing else is known of a cut log."""
    if not log.cut or any(error.role is Role.ROOT for error in log.errors):
        return
    from gonogo.judge.similar.find import hazards_with_similar_cases

    for hazard in filter(_is_applicable_to(log), filter(None, map(hazard_of, hazards_with_similar_cases(log)))):
        yield hazard, _possible_finding(hazard, log.cut[0], _SIMILAR_FRAMES_CAUSE, _MISSING_LAST_LINE)


def _is_applicable_to(log: FailureLog) -> Callable[[Hazard], bool]:
    outside = outside_training(log)
    # A guess at what ZeRO-3 does needs a log in which no other engine shards.
    no_zero3 = log.says(_TORCH_SHARDING_PATTERN) and not under_zero3(log)

    def counts(hazard: Hazard) -> bool:
        if no_zero3 and hazard.name.startswith("zero3-"):
            return False
        return not outside or getattr(hazard, "anywhere", False)

    return counts


def _findings_by_last_frame(log: FailureLog, hazards: Iterable[Hazard]) -> Iterator[Finding]:
    """The hazards at whose places a traceback without its last line ends; none where the log has another error."""
    if not log.cut or any(error.role is Role.ROOT for error in log.errors):
        return
    # Where the innermost frame was cut too, the call in the one above it says what it was.
    innermost = 1 if all(error.frames and error.frames[-1].code for error in log.cut) else 2
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
    """The hazards of which a line is left that stands beside the one that names them."""
    traces = "|".join(re.escape(trace) for hazard in hazards for trace in hazard.traces)
    lines = tuple(islice(log.find_all(Pattern(traces)), _MAX_LINES)) if traces else ()
    if log.says(_NCCL_WARNING_PATTERN):
        lines = tuple(line for line in lines if not _NCCL_SUMMARY.search(line.text))
    for hazard in hazards if lines else ():
        line = next((line for line in lines if any(trace in line.text for trace in hazard.traces)), None)
        if line is not None:
            yield _possible_finding(hazard, line, _REMAINING_LINE_CAUSE)


def _possible_finding(
    hazard: Hazard, evidence: LoggedError | LineMatch, cause: Text, confirm: Text = _MISSING_CONTEXT
) -> Finding:
    return hazard.log_finding(
        evidence, cause, cure=_CURE.format(name=hazard.name), certainty=Certainty.POSSIBLE, confirm=confirm
    )
