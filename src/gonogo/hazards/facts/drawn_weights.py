"""Reads transformers' messages about weights that it initialized at random while loading a model."""

from collections.abc import Iterator, Sequence

from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.patterns import Pattern
from gonogo.evidence.rehearsal.record import LoadedWeights, RankRecord
from gonogo.finding import Text
from gonogo.hazards.facts.parameter_names import group_by_module

_NEWLY_INITIALIZED_PATTERN = Pattern(
    r"Some weights of (?:the model )?(\S+) were not initialized from the model checkpoint at (\S+) "
    r"and are newly initialized:? *(.*)"
)
_UNUSED_WEIGHTS_PATTERN = Pattern(
    r"were not used when initializing (\S+): \[(.*)|([\w.]+(?:\{[^}]*\}[\w.]*)*)\s*\|\s*UNEXPECTED\b"
)
_QUOTED_NAME_PATTERN = Pattern(r"'([\w.]+)'")
_REPORT_PATTERN = Pattern(r"(\w+) LOAD REPORT from: (\S+)")
_MISSING_KEY_PATTERN = Pattern(r"([\w.]+(?:\{[^}]*\}[\w.]*)*)\s*\|\s*MISSING\b")
_MAX_NAMED_PATTERNS = 4


def is_lost_in_conversion(loaded_weights: LoadedWeights, rank: RankRecord) -> bool:
    """Whether transformers 5.0, which converts a checkpoint's layout, lost those weights under ZeRO-3."""
    return (
        bool(loaded_weights.held)
        and rank.versions.get("transformers", "").startswith("5.0.")
        and loaded_weights.under_zero3
    )


def find_newly_initialized(log: FailureLog) -> Iterator[tuple[LineMatch, list[str]]]:
    """The names of newly initialized weights, from transformers 4's sentence or transformers 5's table."""
    sentence = log.find(_NEWLY_INITIALIZED_PATTERN)
    if sentence:
        yield sentence, [quoted.group(1) for quoted in _QUOTED_NAME_PATTERN.finditer(sentence.match.group(3))]
    reported = find_load_report(log)
    if reported is not None:
        yield reported


def find_load_report(log: FailureLog) -> tuple[LineMatch, list[str]] | None:
    """The header of transformers 5's table (group 1: the model's class), and the names listed as missing."""
    report = log.find(_REPORT_PATTERN)
    if report is None:
        return None
    rows = (_MISSING_KEY_PATTERN.search(line.text) for line in log.lines if line.path == report.line.path)
    return report, [row.group(1) for row in rows if row]


def find_longer_name_in_checkpoint(log: FailureLog, names: Sequence[str]) -> str | None:
    """An unused name in the checkpoint that ends in one of those names: a wrapper's prefix was left on."""
    endings = tuple(f".{name}" for name in names)
    for found in log.find_all(_UNUSED_WEIGHTS_PATTERN):
        row = found.match.group(3)
        unused: list[str] = (
            [row] if row else [quoted.group(1) for quoted in _QUOTED_NAME_PATTERN.finditer(found.match.group(2))]
        )
        if longer := next((name for name in unused if name.endswith(endings)), None):
            return longer
    return None


def abbreviated_names(names: Sequence[str]) -> Text:
    """Some of the names, with those of many layers merged into one."""
    patterns = group_by_module(names)
    first, more = ", ".join(patterns[:_MAX_NAMED_PATTERNS]), len(patterns) - _MAX_NAMED_PATTERNS
    return Text(f"{first}, {more} more", f"{first} 等 {len(patterns)} 类") if more > 0 else Text(first, first)
