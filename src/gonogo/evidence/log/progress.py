"""How far a run got: progress bars of data preparation and of training, and logged losses."""

from __future__ import annotations

from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.patterns import Pattern

_DATA_PREPARATION_PATTERN = Pattern(
    r"(?i)\d{1,3}%\|.*(?:examples?/s|\bex/s|samples/s|\bba/s)"
    r"|(?:running tokenizer|tokeniz\w*|\bmap\b|\bfilter\b|pre-?process\w*|grouping|packing|converting format|\bsplit\b"
    r"|encoding|formatting|applying|adding eos|truncating|extracting|concatenat\w*)[^%|]{0,80}\d{1,3}%\|"
)
_TRAINING_PROGRESS_PATTERN = Pattern(
    r"[{'\"]loss['\"]?: |\bloss ?[=:] ?\d|^\s*\d{1,3}%\|[^|]*\|.*(?:it/s|s/it)"
    r"|\b[Ee]poch:? ?\[?\d+\]?[:/ ]+ *\d+(?:%\||/)|\bsteps?: +\d+%\|"
)
_FINISHED_STEP_PATTERN = Pattern(
    r"[{'\"]loss['\"]?: |^\s*\d{1,3}%\|[^|]*\| *[1-9]\d*/\d+ \[|\b[Ee]poch:? ?\d+: +\d+%\|[^|]*\| *[1-9]\d*/"
)
_ZERO_STEP_BAR_PATTERN = Pattern(r"\b0%\|[^|]*\| *0/\d+ \[")
_BAR_STATE_PATTERN = Pattern(r"\b\d{1,3}%(?:\|[^|]*\|)? *(\d{1,9})/(\d{1,9})(?: \[|[\"'”]|\s|$)")


def is_data_preparation(line: LogLine | LineMatch) -> bool:
    """True for a progress bar of ``map``, a tokenizer, or other data preparation."""
    return _DATA_PREPARATION_PATTERN.search(line.text) is not None


def first_training_line(log: FailureLog) -> LineMatch | None:
    """The first line written by training: a progress bar over steps, even at 0, or a loss."""
    return log.find(_TRAINING_PROGRESS_PATTERN)


def first_step_line(log: FailureLog) -> LineMatch | None:
    """The first line that shows a finished step."""
    return log.find(_FINISHED_STEP_PATTERN)


def last_steps(log: FailureLog) -> dict[str, int]:
    """For each log's path, the number of the last line that shows a finished step."""
    return {found.line.path: found.line.number for found in log.find_all(_FINISHED_STEP_PATTERN)}


def is_before_first_step(log: FailureLog) -> bool:
    """True if the training progress bar is at 0 and no line shows a finished step."""
    return first_step_line(log) is None and log.find(_ZERO_STEP_BAR_PATTERN) is not None


def last_activity(log: FailureLog, before: LogLine) -> LogLine | None:
    """The last line, up to and including ``before``, that shows data preparation or a training step."""
    for line in reversed((*log.lines_before(before, 40), before)):
        if is_data_preparation(line) or _TRAINING_PROGRESS_PATTERN.search(line.text):
            return line
    return None


def nearly_finished_line(log: FailureLog) -> LineMatch | None:
    """The last state of a training progress bar, if it stopped within the last few steps."""
    last = next(iter([*log.find_all(_BAR_STATE_PATTERN)][-1:]), None)
    if last is None or is_data_preparation(last):
        return None
    done, total = int(last.match.group(1)), int(last.match.group(2))
    return last if total >= 20 and 0.96 * total <= done <= total else None
