"""``--open``: the report as a page, in the browser of the one who asked."""

from __future__ import annotations

import sys
import tempfile
import webbrowser
from pathlib import Path

from gonogo.finding import Report, Text
from gonogo.report import render
from gonogo.report.atomic import write_atomically

_SHOWN = Text("gonogo: shown in the browser: {path}", "gonogo：已在浏览器中打开：{path}")
_NOT_SHOWN = Text(
    "gonogo: no browser on this machine; open {path} on one that has a browser",
    "gonogo：本机没有浏览器；请在有浏览器的机器上打开 {path}",
)


def show(report: Report, written: Path | None, language: str) -> None:
    """Open ``written``, the report's page; None: one that is made in a new folder, which stays for the browser.

    On stderr it is said where it lies. Raises OSError where it can't be written.
    """
    path = written
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="gonogo-"), "report.html")
        write_atomically(path, render(report, "html", language).encode("utf-8", "replace"))
    opened = webbrowser.open(path.resolve().as_uri())
    print((_SHOWN if opened else _NOT_SHOWN).format(path=path).in_language(language), file=sys.stderr)
