"""Finds the releases in which a symbol of a failure appears or disappears: ``gonogo diagnose --upstream``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from gonogo.finding import Text, translated
from gonogo.finding.failure import RaisedException
from gonogo.finding.second_opinion.upstream import UpstreamFact
from gonogo.prepare.packages.sources import SourceUnavailable
from gonogo.trials.upstream.archives import Archives
from gonogo.trials.upstream.questions import UpstreamQuestion, questions_about_failure

_MAX_FACTS = 4
_MAX_SYMBOL_CHARS = 100

ReportProgress = Callable[[Text], None]

_LOOKING = translated("comparing releases of {package}: {version}")
_VERSION_NOT_KNOWN = translated(
    "{package}: the log does not show its version, so its releases can't be compared (--environment FILE)"
)
_RELEASES_UNAVAILABLE = translated("{package}: its releases can't be obtained: {why}")
_RELEASE_UNAVAILABLE = translated("{package} {version} can't be obtained from the index, or is too large to compare")
_QUESTION_SUBJECTS = {
    "name": translated("`{symbol}` in {owner}"),
    "module": translated("the module `{symbol}`"),
    "attribute": translated("`{symbol}` of {owner}"),
    "argument": translated("the argument `{symbol}` of {owner}"),
    "line": translated("`{symbol}` in {owner}, which failed"),
}
_LACKS = translated("{package} {version} does not have {what}")
_HAS = translated("{package} {version} has {what}")
_REMOVED_SINCE = translated("it was removed in {first}; {last} is the last release that has it")
_PRESENT_SINCE = translated("it exists from {first} on")
_ABSENT_SINCE = translated("it no longer exists from {first} on")
_INTRODUCED_IN = translated("it was introduced in {first}; {last} does not have it")
_STILL_IN_NEWEST = translated("it still exists in {newest}, the newest release")
_IN_NO_RELEASE = translated("none of the releases examined has it ({oldest} to {newest})")
_DIFFERENT_IMPORT = translated("so the run imported a different release, or a different file of that name")
_FOUND_IN_OTHER_MODULE = translated("{release} has it in {module}")
_CHANGELOG_LINE = translated("its changelog: {line}")


@dataclass(frozen=True)
class ReleaseBoundary:
    """Where the answer changes: the nearest release with the other answer, and its neighbour closer to the run's."""

    other: Version
    same: Version


def upstream_facts(
    chain: Sequence[RaisedException],
    versions: Mapping[str, str],
    archives: Archives | None = None,
    report_progress: ReportProgress = lambda text: None,
) -> tuple[UpstreamFact, ...]:
    """What other releases show about a failure, most informative first. ``versions``: the run's, by package."""
    comparison = _Comparison(archives or Archives(), versions, report_progress)
    found: list[UpstreamFact] = []
    for question in questions_about_failure(chain, versions):
        if len(found) < _MAX_FACTS and not comparison.archives.is_spent:
            found += comparison.facts(question)
    return tuple(sorted(dict.fromkeys(found), key=lambda fact: not fact.releases))[:_MAX_FACTS]


class _Comparison:
    """Compares the run's releases with others that the index has."""

    def __init__(self, archives: Archives, versions: Mapping[str, str], report_progress: ReportProgress) -> None:
        self.archives = archives
        self._versions = versions
        self._report_progress = report_progress

    def facts(self, question: UpstreamQuestion) -> Iterator[UpstreamFact]:
        """The fact from the first package that contains the question's module, class or function."""
        unknown: UpstreamFact | None = None
        for package in question.packages:
            stated_version = self._versions.get(package, "")
            try:
                version = Version(Version(stated_version).public)
            except InvalidVersion:
                unknown = unknown or _make_fact(
                    question, package, stated_version, _VERSION_NOT_KNOWN.format(package=package)
                )
                continue
            try:
                releases = self.archives.releases(package)
            except SourceUnavailable as error:
                unknown = unknown or _make_fact(
                    question,
                    package,
                    stated_version,
                    _RELEASES_UNAVAILABLE.format(package=package, why=str(error)[:160]),
                )
                continue
            answer = self._answer_question(question, package, version) if version in releases else None
            if version in releases and answer is None and self.archives.release(package, version) is not None:
                continue  # no such class or function: try the next package
            if answer is None:
                unknown = unknown or _make_fact(
                    question, package, stated_version, _RELEASE_UNAVAILABLE.format(package=package, version=version)
                )
                continue
            yield self._upstream_fact(question, package, version, answer, releases)
            return
        if unknown is not None:
            yield unknown

    def _answer_question(self, question: UpstreamQuestion, package: str, version: Version) -> bool | None:
        self._report_progress(_LOOKING.format(package=package, version=version))
        release = self.archives.release(package, version)
        return question.answer_for(release) if release is not None else None

    def _upstream_fact(
        self, question: UpstreamQuestion, package: str, version: Version, is_present: bool, releases: list[Version]
    ) -> UpstreamFact:
        later = self._find_boundary(question, package, version, is_present, [one for one in releases if one > version])
        earlier = self._find_boundary(
            question, package, version, is_present, [one for one in releases[::-1] if one < version]
        )
        what = _QUESTION_SUBJECTS[question.kind].format(
            symbol=question.symbol[:_MAX_SYMBOL_CHARS], owner=question.owner
        )
        lines = [(_HAS if is_present else _LACKS).format(package=package, version=version, what=what)]
        if is_present:
            if earlier is not None:
                lines.append(_INTRODUCED_IN.format(first=earlier.same, last=earlier.other))
            if later is not None:
                lines.append(_ABSENT_SINCE.format(first=later.other))
            elif question.kind == "line":
                lines.append(_STILL_IN_NEWEST.format(newest=releases[-1]))
            elif earlier is None:
                lines.append(_DIFFERENT_IMPORT)
        else:
            if earlier is not None:
                lines.append(_REMOVED_SINCE.format(first=earlier.same, last=earlier.other))
            if later is not None:
                lines.append(_PRESENT_SINCE.format(first=later.other))
            if earlier is None and later is None:
                lines.append(_IN_NO_RELEASE.format(oldest=releases[0], newest=releases[-1]))
            if question.kind == "name" and (place := self._find_moved_module(question, package, version)) is not None:
                lines.append(_FOUND_IN_OTHER_MODULE.format(release=version, module=place))
        edges = [edge for edge in (later, earlier) if edge is not None]
        changelog = self._changelog_line(question, package, later, earlier)
        if changelog:
            lines.append(_CHANGELOG_LINE.format(line=changelog))
        text = Text("; ".join(one.en for one in lines), "；".join(one.zh for one in lines))
        return UpstreamFact(
            package,
            str(version),
            f"{question.owner}:{question.symbol}"[: 2 * _MAX_SYMBOL_CHARS].lstrip(":"),
            text,
            tuple(str(edge.other) for edge in edges),
            tuple(str(edge.same) for edge in edges),
            changelog,
        )

    def _find_boundary(
        self, question: UpstreamQuestion, package: str, version: Version, is_present: bool, versions: list[Version]
    ) -> ReleaseBoundary | None:
        """Find the nearest change among releases that lead away from the run's, by galloping and bisection.

        The releases 1, 2, 4 … away are checked first, so that of several changes the nearest is found.
        """
        near, step = -1, 1
        far: int | None = None
        while near < len(versions) - 1 and far is None:
            at = min(near + step, len(versions) - 1)
            step *= 2
            answer = self._answer_question(question, package, versions[at])
            if self.archives.is_spent and answer is None:
                return None
            if answer is None or answer == is_present:
                near = at
            else:
                far = at
        if far is None:
            return None
        while far - near > 1:
            middle = (near + far) // 2
            answer = self._answer_question(question, package, versions[middle])
            if answer is None and self.archives.is_spent:
                break
            if answer is None or answer == is_present:
                near = middle
            else:
                far = middle
        return ReleaseBoundary(versions[far], versions[near] if near >= 0 else version)

    def _find_moved_module(self, question: UpstreamQuestion, package: str, version: Version) -> str | None:
        """The module of the run's release that defines a name which is missing where it was imported from."""
        release = self.archives.release(package, version)
        if release is None:
            return None
        path = next((path for path, _ in release.definitions_of(question.symbol)), None)
        return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") if path is not None else None

    def _changelog_line(
        self, question: UpstreamQuestion, package: str, later: ReleaseBoundary | None, earlier: ReleaseBoundary | None
    ) -> str:
        """The line of the package's own changelog that mentions the symbol, for the release in which it changed."""
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
                if _HEADING_PATTERN.match(line):
                    heading = line.strip("#= \t")[:40]
                elif word.search(line):
                    return f"{heading}: {' '.join(line.split())}"[:240].lstrip(": ")
        return ""


_HEADING_PATTERN = re.compile(r"#{1,3} |\[?v?\d+\.\d+")


def _make_fact(question: UpstreamQuestion, package: str, version: str, remark: Text) -> UpstreamFact:
    return UpstreamFact(
        package, version, f"{question.owner}:{question.symbol}"[: 2 * _MAX_SYMBOL_CHARS].lstrip(":"), remark
    )
