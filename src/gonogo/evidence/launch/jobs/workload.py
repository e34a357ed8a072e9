"""A job of a queue: its command, and the resources that it requests."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from gonogo.evidence.launch.jobs.yaml_node import PlacedText
from gonogo.evidence.source_file import Place

_SHELL_PROGRAMS = ("bash", "sh", "/bin/bash", "/bin/sh", "/usr/bin/bash")
_BYTES_PER_UNIT = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_VARIABLE_PATTERN = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")


class Workload(msgspec.Struct, frozen=True):
    """A job of a queue: its command, container, GPUs and nodes. Memory is in bytes; None if not requested."""

    kind: str
    words: tuple[PlacedText, ...]
    environment: dict[str, PlacedText]
    nodes: int | None
    """None if unknown."""
    gpus: int | None
    """Number per node."""
    accelerator: str | None
    """As named in the file: an accelerator, or a cloud instance type."""
    memory_bytes: int | None
    shm_bytes: int | None
    """Size of /dev/shm; None if it is limited only by memory, or unknown."""
    container: Place
    """The definition of the container, which findings about it point to."""
    image: PlacedText | None
    folder: str | None
    """The working directory, in the image or on the rented machine."""
    setup: PlacedText | None = None
    """A shell script that runs before the command, on each node."""
    packages: tuple[PlacedText, ...] = ()
    """Packages installed before the command, one requirement each."""
    files: dict[str, PlacedText] = {}
    """Files defined in the job's file and mounted, by their path in the container."""
    mounts: dict[str, str] = {}
    """Local files and folders to mount: their path in the job, and their local path relative to the job's file."""
    numbers: tuple[PlacedText, ...] = ()
    """The numbers of nodes and accelerators, as written."""


def shell_code_of(workload: Workload) -> PlacedText | None:
    """The code of ``bash -c CODE``, if the command is of this form, possibly after an image's entry point."""
    *_before, shell, option, code = (None, None, *workload.words) if len(workload.words) > 2 else (None, None, None)
    if shell is None or option is None or code is None:
        return None
    is_shell = shell.text in _SHELL_PROGRAMS and re.fullmatch("-[a-z]*c", option.text or "")
    return code if is_shell else None


def unfilled_variables(workload: Workload) -> list[str]:
    """The variables that ``envsubst`` or the like has to replace before the file is submitted.

    No queue replaces ``$NAME`` in a number, or in a command that is not run by a shell.
    """
    script = shell_code_of(workload)
    own = [word for word in workload.words if word is not script and workload.kind != "SkyPilot"]
    found = [
        match[1] or match[2]
        for word in (*workload.numbers, *own)
        for match in _VARIABLE_PATTERN.finditer(word.text or "")
    ]
    return list(dict.fromkeys(found))


def local_path_of_mount(workload: Workload, path: str, folder: Path) -> str | None:
    """The local counterpart of a path in the job's container, or None if the job mounts nothing there."""
    for mount in sorted(workload.mounts, key=len, reverse=True):
        for there in (mount.rstrip("/"), os.path.expanduser(mount.rstrip("/"))):
            if path == there or path.startswith(f"{there}/"):
                return str(folder / workload.mounts[mount] / path[len(there) :].lstrip("/"))
    return None


def parse_size_bytes(text: str | None) -> int | None:
    """The bytes of ``512Gi``, ``1T``, ``512+``; None for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?\+?", text or "")
    return int(float(match[1]) * _BYTES_PER_UNIT[match[2] or ""]) if match else None
