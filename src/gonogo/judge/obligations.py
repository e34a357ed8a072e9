"""What a finding in a log owes before it may be certain or likely; what fails is only possible, or dropped.

A hazard's pattern says what the log must contain. That is not enough: the same words may come from another cause.
So each finding is also asked what would happen if the log said something else:

- With other names in the exception's message (another attribute, module, argument, key), would the hazard claim it
  just the same, without a word about the names? Then it was claimed by the place, and what was raised there has another
  reason: any defect in that function raises such an exception.
- Does the log show the engine or the library that the hazard is about?
- Is the evidence a line beside an exception that explains itself?
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from gonogo.evidence.failure.api_mismatch import PLAIN_TYPES
from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.role import Role
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.hazard import Hazard

_NAMING_TYPES = frozenset(("AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "UnboundLocalError"))
"""Exceptions that say which name of the code is not there: any mistake at the same place raises them, too."""
_SELF_EXPLAINING_TYPES = _NAMING_TYPES | {"IndexError", "KeyError", "TypeError"}
"""Exceptions that Python itself raises for any mistake, and whose message names what was wrong."""
_NAMED_PATTERN = lazy_compile(r"(?<![\w.])([A-Za-z_][\w.]*)\(\)|[\"'`]([A-Za-z_][\w.]*)[\"'`]")
_THEME_OF_RELEASES = "environment"
_OTHER_NAME = "qzx_other"
_ZERO = "zero"
_MENTIONS = {
    "ddp": r"\bddp\b|DistributedDataParallel|_ddp|nn/parallel",
    "flash-attn": "flash",
    "lora": "lora|peft|adapter",
    "npu": r"npu|ascend|hccl|\bacl",
    _ZERO: r"deepspeed|zero|\bds_|Invalidate trace cache",
}
"""How a log, a launch or a config mentions what a hazard is about, if not by that name itself."""


def limit_certainty_to_obligations(finding: Finding, hazard: Hazard, log: FailureLog) -> Finding | None:
    """The finding, no more certain than its evidence allows; None if the log shows nothing of the framework."""
    if finding.severity is Severity.NOTE or hazard.fallback:
        return finding
    if finding.certainty is Certainty.POSSIBLE:
        return None if _is_about_unmentioned_framework(finding, hazard, log) else finding
    error = _decisive_error(finding, log)
    if error is None:
        if finding.certainty is Certainty.CERTAIN and any(map(_is_self_explaining, log.errors)):
            return replace(finding, certainty=Certainty.LIKELY, confirm=finding.confirm or _confirmation_texts(hazard))
        return finding
    if hazard.setting and not _is_mentioned(log, hazard.setting):
        return replace(finding, certainty=Certainty.POSSIBLE, confirm=finding.confirm or _confirmation_texts(hazard))
    if hazard.theme == _THEME_OF_RELEASES:
        return finding  # Two packages that don't fit each other: which name is missing does not matter.
    if error.type in _NAMING_TYPES and _matches_any_names(finding, hazard, log, error):
        return replace(finding, certainty=Certainty.POSSIBLE, confirm=finding.confirm or _confirmation_texts(hazard))
    return finding


def _confirmation_texts(hazard: Hazard) -> tuple[Text, ...]:
    """How to confirm a finding that was certain by its pattern alone."""
    told = getattr(hazard, "confirm", ())
    return (told,) if isinstance(told, Text) else tuple(told)


def _is_about_unmentioned_framework(finding: Finding, hazard: Hazard, log: FailureLog) -> bool:
    """Whether neither the log nor the setup mentions the hazard's framework, though they would if it were used.

    A timeout alone suggests no hang of ZeRO where nothing mentions ZeRO; a traceback suggests no library's hazard that
    neither passes through the library nor names it.
    """
    error = _decisive_error(finding, log)
    if error is None:
        return _ZERO in hazard.about and not _is_mentioned(log, _ZERO)
    # torch's own checks of collectives raise in torch, also under ZeRO: there the frames show no more than the line.
    libraries = [name for name in hazard.about if name != _ZERO]
    return bool(error.all_frames) and not all(_is_mentioned(log, name) for name in libraries)


def _is_mentioned(log: FailureLog, name: str) -> bool:
    pattern = Pattern(f"(?i){_MENTIONS.get(name, re.escape(name))}")
    versions = "\n".join(log.setup.version_texts)
    return log.says(pattern) or log.setup.mentions(pattern.text) or pattern.search(versions) is not None


def _decisive_error(finding: Finding, log: FailureLog) -> LoggedError | None:
    """The exception that is the finding's evidence; None if it is a line."""
    if not finding.spans:
        return None
    place = finding.spans[0]
    return next(
        (error for error in log.errors if (error.raised.at.path, error.raised.at.number) == (place.path, place.line)),
        None,
    )


def _is_self_explaining(error: LoggedError) -> bool:
    """Whether the exception's type says what went wrong, and its traceback where."""
    return error.role is Role.ROOT and error.type in _SELF_EXPLAINING_TYPES and bool(error.frames)


def _matches_any_names(finding: Finding, hazard: Hazard, log: FailureLog, error: LoggedError) -> bool:
    """Whether the hazard would also match the exception with other names in it, and names none of them."""
    names = dict.fromkeys(_names_in_message(error.message))
    if not names:
        return False
    said = "\n".join(text.en for text in (finding.title, finding.cause, *finding.cure))
    if any(re.search(rf"(?<!\w){re.escape(name.rpartition('.')[2])}(?!\w)", said) for name in names):
        return False
    elsewhere = _with_other_names(log, error, list(names))
    return any(claimed.certainty is not Certainty.POSSIBLE for claimed in hazard.in_log(elsewhere))


def _names_in_message(message: str) -> Iterator[str]:
    for found in _NAMED_PATTERN.finditer(message[:2000]):
        name = found.group(1) or found.group(2)
        if name not in PLAIN_TYPES and name != "NoneType":
            yield name


def _with_other_names(log: FailureLog, error: LoggedError, names: list[str]) -> FailureLog:
    """A copy of the log in which the exception has other names."""
    first = error.message.partition("\n")[0].strip()
    any_of = re.compile("|".join(rf"(?<![\w.]){re.escape(name)}(?![\w.])" for name in names))

    def replace_last_name(match: re.Match[str]) -> str:
        module, dot, _ = match.group().rpartition(".")
        return f"{module}{dot}{_OTHER_NAME}"

    lines = [
        replace(line, text=any_of.sub(replace_last_name, line.text))
        if error.type in line.text and first in line.text
        else line
        for line in log.lines
    ]
    return FailureLog(lines, log.given_setup, log.logs, log.dumps)
