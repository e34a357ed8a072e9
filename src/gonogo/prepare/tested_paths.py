"""Paths in the launch that don't exist and that the program checks itself: ``assert os.path.exists(root)``.

Such a program fails with an exception of its own, such as an AssertionError, which often doesn't name the path.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from gonogo.evidence.rehearsal.record import Failure
from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError
from gonogo.prepare.missing_files import PROJECT_FILE_SUFFIXES

_PATH_CHECK_FUNCTIONS = frozenset(
    {"exists", "isfile", "isdir", "is_file", "is_dir", "lexists", "glob", "rglob", "listdir", "access"}
)
_OUTPUT_NAME_PATTERN = re.compile(r"out|save|log|work_?dir|job_?dir|cache|report|run_?name", re.IGNORECASE)
_USER_ERROR_TYPES = frozenset({"AssertionError", "ValueError", "RuntimeError", "FileNotFoundError", "Exception"})
_NO_FILES_FOUND_PATTERN = re.compile(
    r"\b[Nn]o\b[^.\n]{0,20}\.?[^.\n]{0,40}\b(?:files?|shards?|images?|samples?|examples?)\b[^.\n]{0,30}\bfound\b"
    r"|\b(?:[Ff]ound|[Ff]inds?) no\b[^.\n]{0,40}\b(?:files?|shards?|images?|samples?|examples?)\b"
)
_MAX_BYTES = 1 << 20


def path_of_failed_check(failure: Failure, command: Sequence[str], folder: Path) -> str | None:
    """The absolute path that the program's failed existence check tested; None if the failure is no such check, or
    if all paths exist."""
    frame = failure.innermost("user")
    if failure.phase != "load" or frame is None or not _checks_for_file(Path(frame.path), frame.line):
        return None
    return next(_missing_paths(command, folder, failure.message), None)


def is_empty_folder_failure(failure: Failure) -> bool:
    """Whether a program ended because a folder had none of the files it reads: ``No .txt files found in …``."""
    own = failure.innermost("user") is not None and failure.phase == "load"
    return own and failure.type in _USER_ERROR_TYPES and _NO_FILES_FOUND_PATTERN.search(failure.message) is not None


def _checks_for_file(path: Path, line: int) -> bool:
    """Whether the statement at a line asserts that a path exists, or raises under a condition that checks one."""
    try:
        script = Script(SourceFile.read(path))
    except UserError:
        return False
    for node in ast.walk(script.tree) if script.tree is not None else ():
        if not isinstance(node, (ast.Assert, ast.If)) or not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        body = [*node.body, *node.orelse] if isinstance(node, ast.If) else [node]
        ends = (one for one in body if isinstance(one, (ast.Raise, ast.Assert)))
        if any(one.lineno <= line <= (one.end_lineno or one.lineno) for one in ends) and _checks_a_path(node.test):
            return True
    return False


def _checks_a_path(test: ast.expr) -> bool:
    calls = (node.func for node in ast.walk(test) if isinstance(node, ast.Call))
    names = (func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls)
    return any(name in _PATH_CHECK_FUNCTIONS for name in names)


def _missing_paths(command: Sequence[str], folder: Path, test_output: str) -> Iterator[str]:
    """Paths in the launch and its scripts that don't exist and that the run doesn't write."""
    words = list(command)
    for word in command:
        path = folder / word
        try:
            if word.endswith((".sh", ".bash", ".slurm")) and path.stat().st_size <= _MAX_BYTES:
                words += shlex.split(path.read_text(encoding="utf-8", errors="replace"), comments=True)
        except (OSError, ValueError):
            continue
    before = ""
    for word in words:
        option, _, value = word.rpartition("=")
        requested = option or before
        before = word if word.startswith("-") else ""
        if (
            "/" not in value
            or "$" in value
            or "://" in value
            or value.startswith("-")
            or _OUTPUT_NAME_PATTERN.search(requested)
        ):
            continue
        whole = os.path.normpath(os.path.join(folder, os.path.expanduser(value)))
        if value.endswith(PROJECT_FILE_SUFFIXES) and not value.startswith(("/", "~")):
            continue  # it should have come with the project
        is_path = value.startswith(("/", ".", "~")) or os.path.splitext(value)[1] or value in test_output
        if is_path and not os.path.lexists(whole):
            yield whole
