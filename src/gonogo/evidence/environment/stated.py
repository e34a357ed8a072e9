"""The releases of packages that a project's pages state in prose: ``tested with PyTorch 1.10.0 and timm 0.5.0``.

Many projects of research list no requirements; what they were run with stands in a sentence of their README.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from gonogo.evidence.paths import read_bytes

_NAMES = {
    "pytorch": "torch", "torch": "torch", "torchvision": "torchvision", "torchaudio": "torchaudio", "timm": "timm",
    "transformers": "transformers", "diffusers": "diffusers", "deepspeed": "deepspeed", "accelerate": "accelerate",
}  # fmt: skip
"""The names as pages write them, in lower case, each with its package."""
_STATEMENT_PATTERN = re.compile(
    rf"(?<![\w/.-])(?P<name>{'|'.join(sorted(_NAMES, key=len, reverse=True))})(?:\]\([^)\n]*\))?"
    r"[`*\]]*\s*(?:install|version|release|v(?=\d))?[\s`*:(]*(?P<operator>===?|=|>=|≥|~=)?\s*v?"
    r"(?P<version>\d+\.\d+(?:\.\d+)?)(?![\d.]*\w)"
    r"(?P<later>\s*\+(?!\s*cu)|\s*\(?(?:or|and) (?:newer|later|above|higher|up))?",
    re.IGNORECASE,
)
_HEADING_PATTERN = re.compile(r"^\s{0,3}(?:#+\s*|\*\*)(.*)$")
_OF_INSTALLATION_PATTERN = re.compile(
    r"(?i)require|install|set ?up|environment|depend|prerequisite|getting started|quick ?start|preparation|\btested\b"
)
_PAGES = ("README*", "INSTALL*.md", "docs/INSTALL*.md", "docs/install*.md")
_MAX_BYTES = 1 << 20


class StatedRelease(msgspec.Struct, frozen=True):
    """A package's releases as a page states them, with the page and the position of the statement in its text."""

    name: str
    specifier: str
    page: Path
    start: int
    end: int


def stated_releases(folders: Iterable[Path]) -> dict[str, StatedRelease]:
    """What the pages in these folders state, by package; nothing of a package with different statements.

    The first folder in which a page says something of a package counts.
    """
    found: dict[str, StatedRelease] = {}
    for folder in folders:
        here: dict[str, list[StatedRelease]] = {}
        for page in dict.fromkeys(page for pattern in _PAGES for page in sorted(folder.glob(pattern))):
            for one in _on_page(page):
                here.setdefault(one.name, []).append(one)
        for name, several in here.items():
            if name not in found and len({one.specifier for one in several}) == 1:
                found[name] = several[0]
    return found


def _on_page(page: Path) -> Iterator[StatedRelease]:
    try:
        data = read_bytes(page)[:_MAX_BYTES]
    except OSError:
        return
    start, heading = 0, ""
    for line in data.splitlines(keepends=True):
        text = line.decode("utf-8", "replace")
        if (titled := _HEADING_PATTERN.match(text)) is not None:
            heading = titled[1]
        if _OF_INSTALLATION_PATTERN.search(heading) or _OF_INSTALLATION_PATTERN.search(text):
            for match in _STATEMENT_PATTERN.finditer(text):
                before, after = (len(text[:at].encode()) for at in match.span())
                yield StatedRelease(
                    _NAMES[match["name"].lower()], _specifier(match), page, start + before, start + after
                )
        start += len(line)


def _specifier(match: re.Match[str]) -> str:
    version, operator = match["version"], match["operator"] or ""
    if match["later"] or operator in (">=", "≥"):
        return f">={version}"
    if operator == "~=":
        return f"~={version}"
    return f"=={version}" if version.count(".") > 1 else f"=={version}.*"
