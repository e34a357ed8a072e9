"""A model's claims held against the log: quotes stand in it, places exist, versions and numbers are computed again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from gonogo.check.static_findings import StaticFindings
from gonogo.diagnose.pack.pack import ReaderPack
from gonogo.diagnose.reader.arithmetic import computed
from gonogo.diagnose.reader.model_answer import ClaimedPlace, ModelAnswer, NumberClaim, VersionClaim
from gonogo.evidence.environment.package_name import canonical
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding import Text, translated
from gonogo.finding.second_opinion.model_reading import CheckedClaim

_MIN_QUOTE = 6
_MIN_PART = 4
"""Characters of each part of a quote that leaves words out: single letters stand in any log."""
_MAX_LEFT_OUT = 4000
"""Characters that a quote may leave out between two of its parts."""
_MAX_TRIES = 200
_ROUNDED = 0.005
"""How far a number that was rounded may be off."""
_SMALL = 100
"""Numbers below it need not stand in the log: ranks, powers, percentages."""

_STANDS = translated("it is in the log")
_STANDS_NOT = translated("it does not stand in the log")
_TOO_SHORT = translated("too short to show anything")
_THERE = translated("there is such a line")
_NOT_THERE = translated("there is no such line in the logs or files")
_HAD = translated("the log says so")
_HAD_OTHER = translated("the log says {version}")
_NOT_TOLD = translated("the log does not tell its version")
_NO_VERSION = translated("it is not a version")
_SATISFIES = translated("{version} does satisfy {needs}")
_VIOLATES = translated("the log says so, and it does not satisfy {needs}")
_COMES_TO = translated("computed again")
_COMES_TO_OTHER = translated("it comes to {value}")
_NO_EXPRESSION = translated("it is not plain arithmetic")
_NOTHING_OF_THE_LOG = translated("none of its numbers is in the log")
_NOWHERE = translated("{number} stands nowhere in the log")


def checked(answer: ModelAnswer, log: FailureLog, files: StaticFindings, pack: ReaderPack) -> tuple[CheckedClaim, ...]:
    """Every claim of an answer, each with whether it holds and why."""
    evidence = _Evidence(log, files, pack)
    return tuple(_claims(answer, evidence))


class _Evidence:
    """The log and the run's files, with private names replaced as in the pack: what a model can have seen."""

    def __init__(self, log: FailureLog, files: StaticFindings, pack: ReaderPack) -> None:
        say = pack.privacy.text
        texts = [say(line.text) for line in log.lines]
        setup = log.setup
        texts += [say(text) for text in (setup.launch, setup.deepspeed_config_text, setup.script) if text]
        texts += [say(source.text) for source in files.sources.values() if len(source.data) < 200_000]
        self.text = _flat("\n".join([*texts, pack.evidence]))
        self.digits = re.sub(r"(?<=\d)[,_](?=\d{3})", "", self.text)
        self.own_digits = re.sub(r"(?<=\d)[,_](?=\d{3})", "", _flat("\n".join(texts)))
        """Numbers of the log and the run's files alone: the pack counts lines and tokens of its own."""
        self.versions = setup.version_texts
        self.lines = {say(facts.path): facts.lines for facts in log.logs}
        self.places = {(say(line.path), line.number) for line in log.lines}
        for error in (*log.errors, *log.cut):
            self.places |= {(pack.privacy.path(frame.path), frame.line) for frame in error.all_frames}
        for path, source in files.sources.items():
            self.lines[path] = source.text.count("\n") + 1


def _claims(answer: ModelAnswer, evidence: _Evidence) -> Iterator[CheckedClaim]:
    """Each claim once: to say the same again shows nothing more."""
    for quote in dict.fromkeys(answer.quotes):
        yield _quote(quote, evidence)
    for place in dict.fromkeys(answer.places):
        yield _place(place, evidence)
    for version in dict.fromkeys(answer.versions):
        yield _version(version, evidence)
    for number in dict.fromkeys(answer.numbers):
        yield _number(number, evidence)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _quote(quote: str, evidence: _Evidence) -> CheckedClaim:
    parts = [_flat(part).strip("`\"'“”‘’ ") for part in re.split(r"\.{3,}|…|\[\.\.\.\]", quote)]
    parts = [part for part in parts if part]
    if not parts or min(map(len, parts)) < (_MIN_QUOTE if len(parts) == 1 else _MIN_PART):
        return CheckedClaim("quote", quote, False, _TOO_SHORT)
    holds = _in_order(parts, evidence.text)
    return CheckedClaim("quote", quote, holds, _STANDS if holds else _STANDS_NOT)


def _in_order(parts: list[str], text: str) -> bool:
    """Whether the parts of a quote that leaves words out stand one after another, near each other."""
    at = text.find(parts[0])
    tries = 0
    while at >= 0 and tries < _MAX_TRIES:
        tries += 1
        end = at + len(parts[0])
        for part in parts[1:]:
            found = text.find(part, end, end + _MAX_LEFT_OUT + len(part))
            if found < 0:
                break
            end = found + len(part)
        else:
            return True
        at = text.find(parts[0], at + 1)
    return False


def _place(place: ClaimedPlace, evidence: _Evidence) -> CheckedClaim:
    said = f"{place.path}:{place.line}"[:400]
    path = place.path.strip()
    holds = place.line >= 1 and bool(path) and (
        any(place.line == line and _same(path, known) for known, line in evidence.places)
        or any(place.line <= lines and _same(path, known) for known, lines in evidence.lines.items())
    )  # fmt: skip
    return CheckedClaim("place", said, holds, _THERE if holds else _NOT_THERE)


def _same(said: str, known: str) -> bool:
    """Whether a path is the known one, or its last parts."""
    return known == said or known.endswith(f"/{said.lstrip('./')}")


def _version(claim: VersionClaim, evidence: _Evidence) -> CheckedClaim:
    said = f"{claim.package} {claim.has}" + (f", needs {claim.needs}" if claim.needs else "")

    def struck(why: Text) -> CheckedClaim:
        return CheckedClaim("version", said[:200], False, why)

    name, has = canonical(claim.package), claim.has.strip().lstrip("v=")
    try:
        version = Version(has)
    except InvalidVersion:
        return struck(_NO_VERSION)
    told = [evidence.versions[name]] if name in evidence.versions else _beside(name, evidence.text)
    if not told:
        return struck(_NOT_TOLD)
    if not any(_agrees(version, one) for one in told):
        return struck(_HAD_OTHER.format(version=told[0]))
    if not claim.needs.strip():
        return CheckedClaim("version", said[:200], True, _HAD)
    try:
        needs = SpecifierSet(claim.needs.strip())
    except InvalidSpecifier:
        return struck(translated("{needs} is no specifier").format(needs=claim.needs[:60]))
    if needs.contains(version.public, prereleases=True):
        return struck(_SATISFIES.format(version=version, needs=needs))
    return CheckedClaim("version", said[:200], True, _VIOLATES.format(needs=needs))


def _agrees(version: Version, told: str) -> bool:
    try:
        return Version(told).public == version.public
    except InvalidVersion:
        return told.rstrip("*").rstrip(".") == str(version)[: len(told.rstrip("*").rstrip("."))]


def _beside(name: str, text: str) -> list[str]:
    """The versions that stand beside a package's name in the log."""
    written = re.escape(name).replace(r"\-", "[-_.]")
    return re.findall(rf"(?i)\b{written}\W{{1,4}}(?:version\W{{1,3}})?v?(\d+\.\d[\w.+]*\w|\d+\.\d)", text)[:8]


def _stands(number: float, digits: str) -> bool:
    return re.search(rf"(?<![\d.]){re.escape(f'{number:.15g}')}(?![\d])", digits) is not None


def _number(claim: NumberClaim, evidence: _Evidence) -> CheckedClaim:
    said = f"{claim.expression} = {claim.equals:g}"[:200]
    found = computed(claim.expression)
    if found is None:
        return CheckedClaim("number", said, False, _NO_EXPRESSION)
    value, numbers = found
    whole = float(value).is_integer() and float(claim.equals).is_integer()
    if not (value == claim.equals if whole else math.isclose(value, claim.equals, rel_tol=_ROUNDED)):
        return CheckedClaim("number", said, False, _COMES_TO_OTHER.format(value=f"{value:.10g}"))
    for number in numbers:
        written = f"{number:.15g}"
        power = float(number).is_integer() and int(number) in (1000, 1024, 1_000_000, 1024**2, 10**9, 1024**3)
        if (
            abs(number) >= _SMALL
            and not power
            and re.search(rf"(?<![\d.]){re.escape(written)}(?!\d)", evidence.digits) is None
        ):
            return CheckedClaim("number", said, False, _NOWHERE.format(number=written))
    if not any(_stands(number, evidence.own_digits) for number in numbers):
        return CheckedClaim("number", said, False, _NOTHING_OF_THE_LOG)
    return CheckedClaim("number", said, True, _COMES_TO)
