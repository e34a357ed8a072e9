"""Packages that rehearsals replace by stand-ins but that the run doesn't have: the program then takes another path.

Rollout engines have no wheel that runs here, so a stand-in appears whenever a program imports one. A project whose
requirements leave the engine out guards the import, and its run never executes the guarded code.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from gonogo.evidence.rehearsal.record import Failure
from gonogo.evidence.run import Run
from gonogo.prepare.project_requirements import ProjectPackages

STOOD_IN = ("vllm", "xformers")
_MAX_BYTES = 1 << 20


def unmentioned_stub_packages(
    packages: ProjectPackages, command: Sequence[str], runs: Sequence[Run]
) -> tuple[str, ...]:
    """The packages with a stand-in that neither the project's requirements nor the launch mention."""
    if not packages.files:
        return ()
    lines = " ".join(packages.lines.values()).encode()
    texts = [lines, *_launch_texts(command, runs)]
    return tuple(name for name in STOOD_IN if not any(name in text.decode("latin-1").lower() for text in texts))


def package_missing_in(failure: Failure, names: Sequence[str]) -> str | None:
    """The one of the names whose absence caused an import error, according to its message."""
    text = f"{failure.message} {failure.cause}".lower()
    return next((name for name in names if "Import" in failure.type and re.search(rf"\b{name}\b", text)), None)


def _launch_texts(command: Sequence[str], runs: Sequence[Run]) -> Iterator[bytes]:
    """The launch's words, its script, the program, and the files that the words name."""
    yield " ".join(command).encode("utf-8", "replace")
    yield from _read_files(Path.cwd(), command)
    for run in runs:
        for script in run.scripts[:1]:
            yield script.source.data
        if run.launch is not None:
            text = run.launch.source.data
            yield text
            yield from _read_files(run.launch.cwd, _split_words(text))


def _split_words(text: bytes) -> list[str]:
    try:
        return shlex.split(text.decode("utf-8", "replace"), comments=True)
    except ValueError:
        return text.decode("utf-8", "replace").split()


def _read_files(folder: Path, words: Sequence[str]) -> Iterator[bytes]:
    for word in dict.fromkeys(one.rpartition("=")[2] for one in words):
        path = os.path.join(folder, word)
        try:
            if os.path.isfile(path) and os.path.getsize(path) <= _MAX_BYTES:
                with open(path, "rb") as file:
                    yield file.read()
        except (OSError, ValueError):
            continue
