"""Whether a project is to be installed with a nightly build of torch, which no release of it stands for."""

from __future__ import annotations

import re
from pathlib import Path

from gonogo.evidence.paths import folders_upward, is_file

_PIP = re.compile(r"\b(?:pip3?|uv pip) install (?P<words>[^\n`&|;]+)")
_TORCH = re.compile(r"(?:^|\s)[\"']?torch(?![\w./-])")
_NIGHTLY = re.compile(r"(?:^|\s)--pre(?![\w-])|/nightly\b")


def asks_for_nightly_torch(folder: Path) -> Path | None:
    """The page whose installation takes torch from its nightly builds; None where it, or another, takes a release.

    Pages are the README files of the folder and of those above, up to the repository's root.
    """
    for place in folders_upward(folder, outside=True):
        for page in sorted(place.glob("README*.md")):
            if is_file(page) and _only_nightly(page):
                return page
    return None


def _only_nightly(page: Path) -> bool:
    try:
        text = page.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    except OSError:
        return False
    lines = [match["words"] for match in _PIP.finditer(text) if _TORCH.search(match["words"])]
    return bool(lines) and all(_NIGHTLY.search(line) for line in lines)
