"""Shared parts of the formats that show findings beside the code (SARIF, GitHub, JUnit)."""

from __future__ import annotations

import os

from gonogo.finding import Certainty, Finding, Severity
from gonogo.finding.ranks import ranks_text
from gonogo.report.untrusted import clean
from gonogo.report.words import colon, word


def annotation_severity(finding: Finding) -> Severity:
    """The severity in annotations: an error only if it is certain, a note if it is only possible."""
    if finding.severity is Severity.NOTE or finding.certainty is Certainty.POSSIBLE:
        return Severity.NOTE
    if finding.severity is Severity.ERROR and finding.certainty is Certainty.CERTAIN:
        return Severity.ERROR
    return Severity.WARNING


def path_from_repository_root(path: str) -> str:
    """The path relative to the root of the repository if it is inside; otherwise absolute, or unchanged for a stream.

    The root is ``GITHUB_WORKSPACE`` if the working directory is inside (a step may run in a subfolder, but GitHub
    requires paths from the root), else the working directory.
    """
    here = os.getcwd()
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    root = workspace if workspace and _is_inside(here, os.path.abspath(workspace)) else here
    if "\0" in path or is_stream(path):
        return path
    whole = os.path.abspath(path)
    return os.path.relpath(whole, root) if _is_inside(whole, os.path.abspath(root)) else whole


def is_stream(path: str) -> bool:
    """Whether the path stands for a stream or a command line instead of a file: ``<stdin>``."""
    return not path or (path.startswith("<") and path.endswith(">"))


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def annotation_text(finding: Finding, language: str) -> str:
    """The cause, the cure and how to make sure, as plain lines."""
    facts = [word(finding.certainty.value, language)]
    if finding.ranks:
        facts.append(ranks_text(finding.ranks).en)
    facts += [
        f"{word(name, language)} {value}"
        for name, value in (("module", finding.module), ("parameter", finding.parameter))
        if value
    ]
    between = colon(language)
    lines = [
        f"{finding.cause.in_language(language)} ({', '.join(facts)})",
        *(f"{word('help', language)}{between}{step.in_language(language)}" for step in finding.cure),
        *(
            f"{word('confirm', language)}{between}{text.in_language(language)}"
            for text in finding.remaining_confirmations
        ),
        f"gonogo explain {finding.hazard}",
    ]
    return "\n".join(clean(line) for line in lines)
