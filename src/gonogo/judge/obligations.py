"""What a finding in a log owes before it may be certain or likely; what fails is only possible, or dropped.

A hazard's pattern says what the log must contain. That is not enough: the same words may come from another cause.
So each finding is also asked what would happen if the log said something else:

- With other names in the exception's message (another attribute, module, argument, key), would the hazard claim it
  just the same, without a word about the names? Then it was claimed by the place, and what was raised there has another
  reason: any defect in that function raises such an exception.
- Would it claim whatever Python raised in the same functions, without a look at the message? Then likewise.
- Does the log show the engine or the library that the hazard is about?
- Is the evidence a line beside an exception that explains itself?
- Does the traceback pass through what is blamed? A hazard of the user's own loop, data or tensors isn't likely where
  every frame is a framework's, nor is one whose cure is another release of a package that the log doesn't mention.

What is left and only possible may head a report if it is *linked*: it names something that the exception, or the code
that raised it, names too. Without a link, what was raised is told first (:func:`is_linked`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from gonogo.evidence.failure.api_mismatch import PLAIN_TYPES
from gonogo.evidence.log.code_owner import is_user_path
from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.role import Role
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.log_rule import LoggedHazard, Sign

_NAMING_TYPES = frozenset(("AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "UnboundLocalError"))
"""Exceptions that say which name of the code is not there: any mistake at the same place raises them, too."""
_SELF_EXPLAINING_TYPES = _NAMING_TYPES | {"IndexError", "KeyError", "TypeError"}
"""Exceptions that Python itself raises for any mistake, and whose message names what was wrong."""
_FEW_TYPES = 2
"""A sign without a message that takes so few types of exceptions at a place was meant for these."""
_RAISED_BY_PYTHON = _SELF_EXPLAINING_TYPES | {"ValueError"}
_NAMED_PATTERN = lazy_compile(r"(?<![\w.])([A-Za-z_][\w.]*)\(\)|[\"'`]([A-Za-z_][\w.]*)[\"'`]")
_THEME_OF_RELEASES = "environment"
_THEMES_OF_OWN_CODE = ("autograd", "data", "device", "loop")
"""Themes of what a user's loop, data set or tensors do: a framework's own code is another cause of the same words."""
_MEMORY_SHORTAGES = ("gpu-oom", "cpu-ram-oom")
_RAISING_FRAMES = 2
_IDENTIFIER_PATTERN = lazy_compile(
    r"[A-Za-z]\w*_\w*[A-Za-z0-9]|_\w*[A-Za-z]\w*|[A-Za-z]*[a-z][A-Z]\w*|[a-z]+\d+|(?<=[/'\"`])\.[a-z]{3,}"
)
_PLACE_PATTERN = lazy_compile(r"\bin [\w.<>]+ \([\w.-]+:\d+\)|[\w.-]+\.py:\d+")
_UPGRADED_PACKAGE_PATTERN = lazy_compile(r"^(?:Upgrade|upgrade|pip install -U|Use a later) ([a-z][\w-]{2,40})\b")
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
    likely = finding.certainty is Certainty.LIKELY
    if (
        (likely and not _is_on_the_chain(finding, hazard, log, error))
        or (likely and _is_claimed_by_place(hazard, log, error))
        or (error.type in _NAMING_TYPES and _matches_any_names(finding, hazard, log, error))
    ):
        return replace(finding, certainty=Certainty.POSSIBLE, confirm=finding.confirm or _confirmation_texts(hazard))
    return finding


def is_linked(finding: Finding, hazard: Hazard, log: FailureLog) -> bool:
    """Whether a finding names something of the failure: an identifier of the exception's message or of its code.

    That the finding repeats the place, or sizes of the message, links nothing. A line outside of exceptions is its own
    link, and so is a shortage of memory, which no other cause reports in these words.
    """
    error = _decisive_error(finding, log)
    if error is None or not error.frames or finding.hazard.startswith(_MEMORY_SHORTAGES):
        return True
    if hazard.theme == _THEME_OF_RELEASES and error.type in _SELF_EXPLAINING_TYPES:
        return True
    said = "\n".join(text.en for text in (finding.title, finding.cause, *finding.cure))
    code = "\n".join(f"{frame.function}\n{frame.code}" for frame in error.frames[-_RAISING_FRAMES:])
    raised = f"{error.message[:2000]}\n{code[:4000]}"
    return not _identifiers(_PLACE_PATTERN.sub(" ", said)).isdisjoint(_identifiers(raised))


def _identifiers(text: str) -> set[str]:
    """Names of code in a text: with an underscore, a digit or a capital letter inside; no plain words."""
    return {name.strip("_").lower() for name in _IDENTIFIER_PATTERN.findall(text)}


def _is_on_the_chain(finding: Finding, hazard: Hazard, log: FailureLog, error: LoggedError) -> bool:
    """Whether the traceback passes through what the hazard blames, or the hazard names something of the failure.

    A message alone is raised for many causes. Without frames nothing tells them apart.
    """
    first_cure = finding.cure[0].en if finding.cure else ""
    upgraded = _UPGRADED_PACKAGE_PATTERN.search(first_cure)
    if error.frames and upgraded is not None and not _is_mentioned(log, upgraded.group(1)):
        return False
    if is_linked(finding, hazard, log):
        return True
    if hazard.theme in _THEMES_OF_OWN_CODE:
        return any(is_user_path(frame.path) for frame in error.all_frames)
    sign = _matching_sign(hazard, log)
    return sign is None or bool(sign.frames or sign.innermost or sign.outside or sign.beside)


def _is_claimed_by_place(hazard: Hazard, log: FailureLog, error: LoggedError) -> bool:
    """Whether the hazard would claim whatever Python raised in these functions, without a look at the message."""
    sign = _matching_sign(hazard, log) if error.type in _RAISED_BY_PYTHON else None
    return sign is not None and sign.says is None and not sign.innermost and not 0 < len(sign.types) <= _FEW_TYPES


def _matching_sign(hazard: Hazard, log: FailureLog) -> Sign | None:
    """The sign that the log shows; None if the hazard's code decides by more than its signs."""
    if not isinstance(hazard, LoggedHazard) or type(hazard).in_log is not LoggedHazard.in_log:
        return None
    return next((sign for sign in hazard.signs if sign.find_evidence(log) is not None), None)


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
