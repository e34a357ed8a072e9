"""Where a package's releases begin or cease to have what a failure asks for: ``gonogo diagnose --upstream``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from gonogo.finding import Text, translated
from gonogo.finding.failure import RaisedException
from gonogo.finding.second_opinion.upstream import UpstreamFact
from gonogo.prepare.packages.sources import NoSource
from gonogo.trials.upstream.archives import Archives
from gonogo.trials.upstream.questions import UpstreamQuestion, questions

_MAX_FACTS = 4
_MAX_SYMBOL = 100

Say = Callable[[Text], None]

_LOOKING = translated("comparing releases of {package}: {version}")
_NO_VERSION = translated(
    "{package}: the log does not tell its version, so that its releases can't be compared (--environment FILE)"
)
_NO_LISTING = translated("{package}: its releases can't be had: {why}")
_NOT_THERE = translated("{package} {version} can't be had from the index, or is too large to compare")
_WHAT = {
    "name": translated("`{symbol}` in {owner}"),
    "module": translated("the module `{symbol}`"),
    "attribute": translated("`{symbol}` of {owner}"),
    "argument": translated("the argument `{symbol}` of {owner}"),
    "line": translated("`{symbol}` in {owner}, which failed"),
}
_LACKS = translated("{package} {version} does not have {what}")
_HAS = translated("{package} {version} has {what}")
_GONE_SINCE = translated("it is gone since {first}; {last} is the last release that has it")
_THERE_FROM = translated("it is there from {first} on")
_GONE_FROM = translated("it is gone from {first} on")
_CAME_WITH = translated("it came with {first}; {last} does not have it")
_STILL = translated("it is still there in {newest}, the newest release")
_NEVER = translated("no release that was looked at has it ({oldest} to {newest})")
_NOT_THIS = translated("so the run imported a different release, or a different file of that name")
_MOVED = translated("{release} has it in {module}")
_SAYS = translated("its changelog: {line}")


@dataclass(frozen=True)
class Edge:
    """Where the answer changes: the nearest release with the other answer, and its neighbour on the run's side."""

    other: Version
    same: Version


def upstream_facts(
    chain: Sequence[RaisedException],
    versions: Mapping[str, str],
    archives: Archives | None = None,
    say: Say = lambda text: None,
) -> tuple[UpstreamFact, ...]:
    """What other releases show of a failure, the most telling first. ``versions`` by package as the run had them."""
    comparison = _Comparison(archives or Archives(), versions, say)
    found: list[UpstreamFact] = []
    for question in questions(chain, versions):
        if len(found) < _MAX_FACTS and not comparison.archives.spent:
            found += comparison.facts(question)
    return tuple(sorted(dict.fromkeys(found), key=lambda fact: not fact.releases))[:_MAX_FACTS]


class _Comparison:
    def __init__(self, archives: Archives, versions: Mapping[str, str], say: Say) -> None:
        self.archives = archives
        self._versions = versions
        self._say = say

    def facts(self, question: UpstreamQuestion) -> Iterator[UpstreamFact]:
        """The fact of the first package that has what the question is asked of."""
        unknown: UpstreamFact | None = None
        for package in question.packages:
            told = self._versions.get(package, "")
            try:
                version = Version(Version(told).public)
            except InvalidVersion:
                unknown = unknown or _remark(question, package, told, _NO_VERSION.format(package=package))
                continue
            try:
                releases = self.archives.releases(package)
            except NoSource as error:
                unknown = unknown or _remark(
                    question, package, told, _NO_LISTING.format(package=package, why=str(error)[:160])
                )
                continue
            answer = self._answer(question, package, version) if version in releases else None
            if version in releases and answer is None and self.archives.release(package, version) is not None:
                continue  # it has no such class or function: another package has
            if answer is None:
                unknown = unknown or _remark(
                    question, package, told, _NOT_THERE.format(package=package, version=version)
                )
                continue
            yield self._fact(question, package, version, answer, releases)
            return
        if unknown is not None:
            yield unknown

    def _answer(self, question: UpstreamQuestion, package: str, version: Version) -> bool | None:
        self._say(_LOOKING.format(package=package, version=version))
        release = self.archives.release(package, version)
        return question.answered(release) if release is not None else None

    def _fact(
        self, question: UpstreamQuestion, package: str, version: Version, there: bool, releases: list[Version]
    ) -> UpstreamFact:
        later = self._edge(question, package, version, there, [one for one in releases if one > version])
        earlier = self._edge(question, package, version, there, [one for one in releases[::-1] if one < version])
        what = _WHAT[question.kind].format(symbol=question.symbol[:_MAX_SYMBOL], owner=question.owner)
        said = [(_HAS if there else _LACKS).format(package=package, version=version, what=what)]
        if there:
            if earlier is not None:
                said.append(_CAME_WITH.format(first=earlier.same, last=earlier.other))
            if later is not None:
                said.append(_GONE_FROM.format(first=later.other))
            elif question.kind == "line":
                said.append(_STILL.format(newest=releases[-1]))
            elif earlier is None:
                said.append(_NOT_THIS)
        else:
            if earlier is not None:
                said.append(_GONE_SINCE.format(first=earlier.same, last=earlier.other))
            if later is not None:
                said.append(_THERE_FROM.format(first=later.other))
            if earlier is None and later is None:
                said.append(_NEVER.format(oldest=releases[0], newest=releases[-1]))
            if question.kind == "name" and (place := self._elsewhere(question, package, version)) is not None:
                said.append(_MOVED.format(release=version, module=place))
        edges = [edge for edge in (later, earlier) if edge is not None]
        changelog = self._changelog(question, package, later, earlier)
        if changelog:
            said.append(_SAYS.format(line=changelog))
        text = Text("; ".join(one.en for one in said), "；".join(one.zh for one in said))
        return UpstreamFact(
            package,
            str(version),
            f"{question.owner}:{question.symbol}"[: 2 * _MAX_SYMBOL].lstrip(":"),
            text,
            tuple(str(edge.other) for edge in edges),
            tuple(str(edge.same) for edge in edges),
            changelog,
        )

    def _edge(
        self, question: UpstreamQuestion, package: str, version: Version, there: bool, others: list[Version]
    ) -> Edge | None:
        """Where the answer changes among releases that lead away from the run's: found by halves.

        Looked at first are those one, two, four … away, so that the nearest change is found of several.
        """
        near, step = -1, 1
        far: int | None = None
        while near < len(others) - 1 and far is None:
            at = min(near + step, len(others) - 1)
            step *= 2
            answer = self._answer(question, package, others[at])
            if self.archives.spent and answer is None:
                return None
            if answer is None or answer == there:
                near = at
            else:
                far = at
        if far is None:
            return None
        while far - near > 1:
            middle = (near + far) // 2
            answer = self._answer(question, package, others[middle])
            if answer is None and self.archives.spent:
                break
            if answer is None or answer == there:
                near = middle
            else:
                far = middle
        return Edge(others[far], others[near] if near >= 0 else version)

    def _elsewhere(self, question: UpstreamQuestion, package: str, version: Version) -> str | None:
        """The module of the run's release that defines a name which is gone from where it was imported from."""
        release = self.archives.release(package, version)
        if release is None:
            return None
        path = next((path for path, _ in release.defining(question.symbol)), None)
        return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") if path is not None else None

    def _changelog(self, question: UpstreamQuestion, package: str, later: Edge | None, earlier: Edge | None) -> str:
        """The line of the package's own changelog that names the symbol, of the release in which it changed."""
        symbol = question.symbol if question.kind != "line" else question.owner
        word = re.compile(rf"(?<![\w.]){re.escape(symbol)}(?!\w)")
        versions = [edge.other if edge is later else edge.same for edge in (later, earlier) if edge is not None]
        for version in versions:
            release = self.archives.release(package, version)
            text = release.changelog if release is not None else ""
            if not text and (source := self.archives.release(package, version, sdist=True)) is not None:
                text = source.changelog
            heading = ""
            for line in text.splitlines():
                if _HEADING.match(line):
                    heading = line.strip("#= \t")[:40]
                elif word.search(line):
                    return f"{heading}: {' '.join(line.split())}"[:240].lstrip(": ")
        return ""


_HEADING = re.compile(r"#{1,3} |\[?v?\d+\.\d+")


def _remark(question: UpstreamQuestion, package: str, version: str, said: Text) -> UpstreamFact:
    return UpstreamFact(package, version, f"{question.owner}:{question.symbol}"[: 2 * _MAX_SYMBOL].lstrip(":"), said)
