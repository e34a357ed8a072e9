"""A folder's contents as shown on the page: subfolders, launch scripts, logs, and records of guarded runs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Literal

import msgspec

from gonogo.cli.serving.folders import Folders
from gonogo.evidence.guarded.launch import launch_path
from gonogo.evidence.launch.manifest import is_manifest
from gonogo.evidence.paths import resolve_path
from gonogo.evidence.source_file import SourceFile

Kind = Literal["folder", "launch", "log", "records", "file"]
_MAX_ENTRIES = 500
_HIDDEN_FOLDERS = {"__pycache__", "node_modules"}
_LAUNCHER_BY_SUFFIX = {".sh": "bash", ".bash": "bash", ".sbatch": "bash", ".slurm": "bash", ".py": "python"}
_LOGS = {".log", ".out", ".err"}


class ListingEntry(msgspec.Struct, frozen=True):
    """A file or folder; ``command`` launches it, if it is known how."""

    name: str
    kind: Kind
    command: str = ""


class FolderListing(msgspec.Struct, frozen=True):
    """A folder below the root; ``path`` is empty for the root itself. ``left_out``: number of entries not shown."""

    path: str
    entries: list[ListingEntry]
    left_out: int = 0


def listing(name: str, folders: Folders) -> FolderListing:
    """The folder's entries, folders first, without hidden names and without links that lead out of the root.

    Raises RequestRefused for a folder outside the allowed ones.
    """
    folder = folders.folder(name)
    root = folders.roots[0]
    path = "" if folder == root else str(folder.relative_to(root))
    entries: list[ListingEntry] = []
    left_out = 0
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        names = []
    for one in names:
        if one.startswith(".") or one in _HIDDEN_FOLDERS:
            continue
        if len(entries) >= _MAX_ENTRIES or not _is_text(one) or not resolve_path(folder / one).is_relative_to(root):
            left_out += 1
            continue
        entries.append(_listing_entry(folder / one))
    order = {"folder": 0, "records": 1, "launch": 2, "log": 3, "file": 4}
    in_order = sorted(entries, key=lambda one: (order[one.kind], one.command.startswith("python"), one.name))
    return FolderListing(path, in_order, left_out)  # shell scripts before the Python programs that they launch


def _listing_entry(path: Path) -> ListingEntry:
    name = path.name
    if os.path.isdir(path):
        return ListingEntry(name, "records" if _is_guarded(path) else "folder")
    suffix = path.suffix.lower()
    if suffix in _LAUNCHER_BY_SUFFIX:
        return ListingEntry(name, "launch", shlex.join([_LAUNCHER_BY_SUFFIX[suffix], _as_argument(name)]))
    if suffix == ".ipynb" or (suffix in (".yaml", ".yml") and _is_job(path)):
        return ListingEntry(name, "launch", shlex.quote(_as_argument(name)))
    return ListingEntry(name, "log" if suffix in _LOGS else "file")


def _as_argument(name: str) -> str:
    return f"./{name}" if name.startswith("-") else name


def _is_job(path: Path) -> bool:
    try:
        return is_manifest(SourceFile.read(path))
    except Exception:  # unreadable or too large: treat it as an ordinary file
        return False


def _is_guarded(path: Path) -> bool:
    begin = os.path.basename(launch_path("", "", 0)).partition("-")[0]
    try:
        return any(name.startswith(f"{begin}-") and name.endswith(".json") for name in os.listdir(path))
    except OSError:
        return False


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
