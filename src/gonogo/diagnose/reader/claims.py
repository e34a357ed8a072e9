"""Verify a model's claims against the log: quotes and places must exist, versions and numbers are recomputed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from gonogo.check.static_findings import StaticFindings
from gonogo.diagnose.pack.pack import ReaderPack
from gonogo.diagnose.reader.arithmetic import evaluate_arithmetic
from gonogo.diagnose.reader.model_answer import ClaimedPlace, ModelAnswer, NumberClaim, VersionClaim
from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding import Text, translated
from gonogo.finding.second_opinion.model_reading import CheckedClaim

_MIN_QUOTE_LENGTH = 6
_MIN_QUOTE_PART_LENGTH = 4
"""Minimum length of each part of a quote with an ellipsis, since short parts occur in any log."""
_MAX_ELLIPSIS_LENGTH = 4000
"""Maximum number of characters that an ellipsis may stand for."""
_MAX_TRIES = 200
_ROUNDING_TOLERANCE = 0.005
"""Relative tolerance for rounded numbers."""
_MIN_CHECKED_NUMBER = 100
"""Smaller numbers don't have to occur in the log: ranks, powers, percentages."""

_QUOTE_FOUND = translated("the quote is in the log")
_QUOTE_NOT_FOUND = translated("the quote is not in the log")
_TOO_SHORT = translated("the quote is too short to show anything")
_LINE_EXISTS = translated("the logs or files have this line")
_LINE_DOES_NOT_EXIST = translated("no log or file has this line")
_VERSION_CONFIRMED = translated("the log states this version")
_OTHER_VERSION_LOGGED = translated("the log states version {version}")
_VERSION_NOT_LOGGED = translated("the log does not show its version")
_NOT_A_VERSION = translated("this is not a version number")
_SATISFIES = translated("{version} does satisfy {needs}")
_VIOLATES = translated("the log states this version, and it does not satisfy {needs}")
_VALUE_CONFIRMED = translated("the calculation is correct")
_OTHER_VALUE = translated("the expression evaluates to {value}")
_NOT_ARITHMETIC = translated("the expression is not plain arithmetic")
_NO_NUMBER_FROM_LOG = translated("none of the expression's numbers is in the log")
_NUMBER_NOT_IN_LOG = translated("{number} does not appear in the log")


def check_claims(
    answer: ModelAnswer, log: FailureLog, files: StaticFindings, pack: ReaderPack
) -> tuple[CheckedClaim, ...]:
    """All claims of a model's answer, with whether each holds and why."""
    evidence = _PrivateEvidence(log, files, pack)
    return tuple(_check_distinct_claims(answer, evidence))


class _PrivateEvidence:
    """The log and the run's files, with private names replaced as in the pack that the model saw."""

    def __init__(self, log: FailureLog, files: StaticFindings, pack: ReaderPack) -> None:
        redact = pack.privacy.redact_text
        texts = [redact(line.text) for line in log.lines]
        setup = log.setup
        texts += [redact(text) for text in (setup.launch, setup.deepspeed_config_text, setup.script) if text]
        texts += [redact(source.text) for source in files.sources.values() if len(source.data) < 200_000]
        self.text = _collapse_whitespace("\n".join([*texts, pack.evidence]))
        self.digits = re.sub(r"(?<=\d)[,_](?=\d{3})", "", self.text)
        self.own_digits = re.sub(r"(?<=\d)[,_](?=\d{3})", "", _collapse_whitespace("\n".join(texts)))
        """Numbers in the log and the run's files only, since the pack contains line and token counts of its own."""
        self.versions = setup.version_texts
        self.lines = {redact(facts.path): facts.lines for facts in log.logs}
        self.places = {(redact(line.path), line.number) for line in log.lines}
        for error in (*log.errors, *log.truncated_errors):
            self.places |= {(pack.privacy.redact_path(frame.path), frame.line) for frame in error.all_frames}
        for path, source in files.sources.items():
            self.lines[path] = source.text.count("\n") + 1


def _check_distinct_claims(answer: ModelAnswer, evidence: _PrivateEvidence) -> Iterator[CheckedClaim]:
    """Check each distinct claim once, since repeating it proves nothing."""
    for quote in dict.fromkeys(answer.quotes):
        yield _check_quote(quote, evidence)
    for place in dict.fromkeys(answer.places):
        yield _check_place(place, evidence)
    for version in dict.fromkeys(answer.versions):
        yield _check_version(version, evidence)
    for number in dict.fromkeys(answer.numbers):
        yield _check_number(number, evidence)


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


def _check_quote(quote: str, evidence: _PrivateEvidence) -> CheckedClaim:
    parts = [_collapse_whitespace(part).strip("`\"'“”‘’ ") for part in re.split(r"\.{3,}|…|\[\.\.\.\]", quote)]
    parts = [part for part in parts if part]
    if not parts or min(map(len, parts)) < (_MIN_QUOTE_LENGTH if len(parts) == 1 else _MIN_QUOTE_PART_LENGTH):
        return CheckedClaim("quote", quote, False, _TOO_SHORT)
    holds = _occur_in_order(parts, evidence.text)
    return CheckedClaim("quote", quote, holds, _QUOTE_FOUND if holds else _QUOTE_NOT_FOUND)


def _occur_in_order(parts: list[str], text: str) -> bool:
    """Whether the parts of a quote with ellipses occur in order and close to each other."""
    at = text.find(parts[0])
    tries = 0
    while at >= 0 and tries < _MAX_TRIES:
        tries += 1
        end = at + len(parts[0])
        for part in parts[1:]:
            found = text.find(part, end, end + _MAX_ELLIPSIS_LENGTH + len(part))
            if found < 0:
                break
            end = found + len(part)
        else:
            return True
        at = text.find(parts[0], at + 1)
    return False


def _check_place(place: ClaimedPlace, evidence: _PrivateEvidence) -> CheckedClaim:
    claimed = f"{place.path}:{place.line}"[:400]
    path = place.path.strip()
    holds = place.line >= 1 and bool(path) and (
        any(place.line == line and _is_same_path(path, known) for known, line in evidence.places)
        or any(place.line <= lines and _is_same_path(path, known) for known, lines in evidence.lines.items())
    )  # fmt: skip
    return CheckedClaim("place", claimed, holds, _LINE_EXISTS if holds else _LINE_DOES_NOT_EXIST)


def _is_same_path(stated_path: str, known_path: str) -> bool:
    """Whether a path equals the known one or is a suffix of it."""
    return known_path == stated_path or known_path.endswith(f"/{stated_path.lstrip('./')}")


def _check_version(claim: VersionClaim, evidence: _PrivateEvidence) -> CheckedClaim:
    claimed = f"{claim.package} {claim.has}" + (f", needs {claim.needs}" if claim.needs else "")

    def rejected_claim(reason: Text) -> CheckedClaim:
        return CheckedClaim("version", claimed[:200], False, reason)

    name, has = canonical_package_name(claim.package), claim.has.strip().lstrip("v=")
    try:
        version = Version(has)
    except InvalidVersion:
        return rejected_claim(_NOT_A_VERSION)
    versions = [evidence.versions[name]] if name in evidence.versions else _versions_near_name(name, evidence.text)
    if not versions:
        return rejected_claim(_VERSION_NOT_LOGGED)
    if not any(_matches_version(version, one) for one in versions):
        return rejected_claim(_OTHER_VERSION_LOGGED.format(version=versions[0]))
    if not claim.needs.strip():
        return CheckedClaim("version", claimed[:200], True, _VERSION_CONFIRMED)
    try:
        needs = SpecifierSet(claim.needs.strip())
    except InvalidSpecifier:
        return rejected_claim(translated("{needs} is not a version specifier").format(needs=claim.needs[:60]))
    if needs.contains(version.public, prereleases=True):
        return rejected_claim(_SATISFIES.format(version=version, needs=needs))
    return CheckedClaim("version", claimed[:200], True, _VIOLATES.format(needs=needs))


def _matches_version(version: Version, stated_version: str) -> bool:
    try:
        return Version(stated_version).public == version.public
    except InvalidVersion:
        return stated_version.rstrip("*").rstrip(".") == str(version)[: len(stated_version.rstrip("*").rstrip("."))]


def _versions_near_name(name: str, text: str) -> list[str]:
    """Versions next to a package's name in the log."""
    written = re.escape(name).replace(r"\-", "[-_.]")
    return re.findall(rf"(?i)\b{written}\W{{1,4}}(?:version\W{{1,3}})?v?(\d+\.\d[\w.+]*\w|\d+\.\d)", text)[:8]


def _contains_number(number: float, digits: str) -> bool:
    return re.search(rf"(?<![\d.]){re.escape(f'{number:.15g}')}(?![\d])", digits) is not None


def _check_number(claim: NumberClaim, evidence: _PrivateEvidence) -> CheckedClaim:
    claimed = f"{claim.expression} = {claim.equals:g}"[:200]
    found = evaluate_arithmetic(claim.expression)
    if found is None:
        return CheckedClaim("number", claimed, False, _NOT_ARITHMETIC)
    value, numbers = found
    whole = float(value).is_integer() and float(claim.equals).is_integer()
    if not (value == claim.equals if whole else math.isclose(value, claim.equals, rel_tol=_ROUNDING_TOLERANCE)):
        return CheckedClaim("number", claimed, False, _OTHER_VALUE.format(value=f"{value:.10g}"))
    for number in numbers:
        written = f"{number:.15g}"
        power = float(number).is_integer() and int(number) in (1000, 1024, 1_000_000, 1024**2, 10**9, 1024**3)
        if (
            abs(number) >= _MIN_CHECKED_NUMBER
            and not power
            and re.search(rf"(?<![\d.]){re.escape(written)}(?!\d)", evidence.digits) is None
        ):
            return CheckedClaim("number", claimed, False, _NUMBER_NOT_IN_LOG.format(number=written))
    if not any(_contains_number(number, evidence.own_digits) for number in numbers):
        return CheckedClaim("number", claimed, False, _NO_NUMBER_FROM_LOG)
    return CheckedClaim("number", claimed, True, _VALUE_CONFIRMED)
