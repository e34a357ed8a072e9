"""A bisection as a line of releases, oldest first, the one that makes the difference marked."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from gonogo.finding import Text
from gonogo.finding.bisection import Bisection, TriedRelease
from gonogo.report.html.markup import element, heading, text

_TITLE = Text("{package}, release by release", "{package} 的各个版本")
_JUDGED = {"good": Text("good", "好"), "bad": Text("bad", "坏"), "skipped": Text("skipped", "跳过")}
_CHANGES = {"breaks": Text("breaks", "引入问题"), "mends": Text("fixes it", "修复问题")}


def releases(bisection: Bisection, language: str) -> str:
    """The section."""
    title = _TITLE.format(package=bisection.package).in_language(language)
    ordered = sorted(bisection.tried, key=_age)
    listed = element("ol", *(_release(one, bisection, language) for one in ordered), klass="releases")
    return element("section", heading(2, title), element("div", listed, klass="wide", tabindex="0", role="group",
                                                         aria_label=title))  # fmt: skip


def _age(release: TriedRelease) -> tuple[Version, str]:
    try:
        return Version(release.version), ""
    except InvalidVersion:
        return Version("0"), release.version


def _release(release: TriedRelease, bisection: Bisection, language: str) -> str:
    parts = [
        element("strong", text(release.version)),
        element("span", text(_JUDGED[release.judged].in_language(language))),
    ]
    if release.version == bisection.version and bisection.change in _CHANGES:
        parts.append(element("mark", text(_CHANGES[bisection.change].in_language(language))))
    return element("li", *parts, klass=release.judged)
