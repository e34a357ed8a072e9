"""One job of a queue: its command, and what it asks for to run it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from gonogo.evidence.launch.jobs.yaml_node import PlacedText
from gonogo.evidence.source_file import Place

_SHELLS = ("bash", "sh", "/bin/bash", "/bin/sh", "/usr/bin/bash")
_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_VARIABLE_PATTERN = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")


class Workload(msgspec.Struct, frozen=True):
    """One job. Memory in bytes; None where it is not asked for."""

    kind: str
    words: tuple[PlacedText, ...]
    environment: dict[str, PlacedText]
    nodes: int | None
    """None where it can't be told."""
    gpus: int | None
    """Of a node."""
    accelerator: str | None
    """As the file names it: an accelerator, or a cloud's instance."""
    memory_bytes: int | None
    shm_bytes: int | None
    """Of /dev/shm; None where it is bounded by the memory alone, or by what is not known here."""
    container: Place
    """What runs the command: where a finding about it points."""
    image: PlacedText | None
    folder: str | None
    """Where it is started, in the image or on the rented machine."""
    setup: PlacedText | None = None
    """What a shell runs before, on each node."""
    packages: tuple[PlacedText, ...] = ()
    """What is installed before, a requirement each."""
    files: dict[str, PlacedText] = {}
    """What stands in the file itself and is mounted: by its path in the container."""
    mounts: dict[str, str] = {}
    """Folders and files that are brought along: their path there, and where they are here, from the file's folder."""
    numbers: tuple[PlacedText, ...] = ()
    """How many nodes and accelerators, as they are written."""


def script_of(workload: Workload) -> PlacedText | None:
    """The code of ``bash -c CODE``, where the job's command is that, also behind an image's entry point."""
    *_before, shell, option, code = (None, None, *workload.words) if len(workload.words) > 2 else (None, None, None)
    if shell is None or option is None or code is None:
        return None
    is_shell = shell.text in _SHELLS and re.fullmatch("-[a-z]*c", option.text or "")
    return code if is_shell else None


def unfilled_variables(workload: Workload) -> list[str]:
    """The names that ``envsubst`` or the like is to fill in before the file is given to its queue.

    No queue replaces ``$NAME`` where it reads a number, nor in a command that no shell runs.
    """
    script = script_of(workload)
    own = [word for word in workload.words if word is not script and workload.kind != "SkyPilot"]
    found = [
        match[1] or match[2]
        for word in (*workload.numbers, *own)
        for match in _VARIABLE_PATTERN.finditer(word.text or "")
    ]
    return list(dict.fromkeys(found))


def brought(workload: Workload, path: str, folder: Path) -> str | None:
    """Where what is at a path there is here; None where the job brings nothing to it."""
    for mount in sorted(workload.mounts, key=len, reverse=True):
        for there in (mount.rstrip("/"), os.path.expanduser(mount.rstrip("/"))):
            if path == there or path.startswith(f"{there}/"):
                return str(folder / workload.mounts[mount] / path[len(there) :].lstrip("/"))
    return None


def parse_size_bytes(text: str | None) -> int | None:
    """``512Gi``, ``1T``, ``512+``; None for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?\+?", text or "")
    return int(float(match[1]) * _SIZES[match[2] or ""]) if match else None
