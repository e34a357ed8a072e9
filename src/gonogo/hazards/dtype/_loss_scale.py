"""Reads the lines in which a loss scaler reports skipped steps, and how low its scale has fallen."""

import re

import msgspec

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.patterns import lazy_compile

OVERFLOW_WORDS = (
    "OVERFLOW!",
    "Attempted loss scale",
    "Gradient overflow",
    "gradient overflow",
    "Overflow detected",
    "dynamic loss scale",
)
_SCALE_PATTERN = r"([\d.]+(?:e[+-]?\d+)?)"
_SKIPPED_STEP_PATTERN = lazy_compile(
    r"OVERFLOW! (?:Rank \d+ )?Skipping step|Overflow detected\. Skipping step"
    r"|[Gg]radient overflow(?: detected)?[.,] +(?:[Ss]kipping|ignoring)"
    r"|Reducing dynamic loss scale from"
)
_REDUCED_SCALE_PATTERN = lazy_compile(
    r"(?:reducing (?:loss scale )?to|setting loss scale to:?"
    rf"|Reducing dynamic loss scale from {_SCALE_PATTERN} to) {_SCALE_PATTERN}",
    re.IGNORECASE,
)
_ATTEMPTED_SCALE_PATTERN = lazy_compile(rf"Attempted loss scale: {_SCALE_PATTERN}")
_DEGENERATE_LOSS_PATTERN = lazy_compile(
    r"""['"]?(?:train_|step_)?loss['"]?\s*[:=]\s*(?:nan\b|inf\b|0\.00*(?!\d))|loss\W.{0,12}\bnan\b|loss.{0,8}[为是]\s?0(?![.\d]*[1-9])""",
    re.IGNORECASE,
)


class LossScaleHistory(msgspec.Struct, frozen=True):
    """The skipped steps. ``lowest`` is the smallest scale reached, None if no line shows it."""

    first: LogLine
    last: LogLine
    skipped: int
    lowest: float | None
    stuck: bool
    """True if the scale could fall no further: it was "reduced" to the same value."""


def loss_scale_history(log: FailureLog) -> LossScaleHistory | None:
    """The loss scale and the skipped steps that the log shows, or None if it shows none."""
    if not any(log.has(words) for words in OVERFLOW_WORDS):
        return None
    first = last = None
    skipped, lowest, stuck = 0, None, False
    for line in log.lines:
        if not _SKIPPED_STEP_PATTERN.search(line.text):
            continue
        first, last, skipped = first or line, line, skipped + 1
        attempted = _ATTEMPTED_SCALE_PATTERN.search(line.text)
        found = _REDUCED_SCALE_PATTERN.search(line.text)
        if found or attempted:
            scale = _parse_number(found.group(2) if found else attempted.group(1) if attempted else "")
            stuck = stuck or (
                found is not None and attempted is not None and _parse_number(attempted.group(1)) == scale == 1
            )
            lowest = scale if lowest is None else min(lowest, scale)
    if first is None or last is None:
        return None
    return LossScaleHistory(first, last, skipped, lowest, stuck)


def _parse_number(text: str) -> float:
    try:
        return float(text.rstrip("."))
    except ValueError:
        return 1.0


def has_broken_loss(log: FailureLog) -> bool:
    """True if the loss is printed as NaN, infinite or zero (zero does not count in reinforcement learning)."""
    return any(
        _DEGENERATE_LOSS_PATTERN.search(line.text)
        for line in log.lines
        if "oss" in line.text and "reward" not in line.text
    )
