"""What a script changes into or sources and is not there, and whether that is sure where the run is, too."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gonogo.evidence.paths import iter_parent_folders, may_exist, open_for_reading
from gonogo.evidence.shell.text import ShellWord
from gonogo.evidence.source_file import Place

if TYPE_CHECKING:
    from gonogo.evidence.shell.reading import ShellReader
    from gonogo.evidence.shell.state import State

_MAKING = frozenset({"cp", "mv", "ln", "rsync", "touch", "git", "wget", "curl", "tar", "unzip", "scp", "tee", "yes"})
"""Commands with no effect on the shell that may make files or folders."""
_INSTALLERS = frozenset({"pip", "pip3", "conda", "mamba", "apt", "apt-get"})
_HARMLESS = frozenset({"wandb"})
_STRAIGHT = frozenset({"program", "list", "command", "redirected_statement", "compound_statement"})
"""Statements within which a command is surely run, where nothing before it has ended the script."""
_BEFORE_AND = frozenset({"cd", "export", "set", "echo", "source", ".", ":", "true"})
"""Commands that a command after ``&&`` may follow and still be surely run."""
_TELLING = ("README", "INSTALL", ".gitignore", ".gitmodules", "Makefile", "Dockerfile", "setup.sh", "install.sh")
"""Files that may say that somebody makes what is not here."""
_MAX_READ_BYTES = 1 << 20


class MissingTarget(msgspec.Struct, frozen=True):
    """A folder that ``cd`` changes into, or a file that is sourced, and that doesn't exist."""

    command: str
    """``cd``, ``source`` or ``.``."""
    written: str
    path: str
    place: Place
    sure: bool
    """Whether it can't be where the run is either, and the script surely comes to it."""


def find_missing_target(
    shell: ShellReader, words: Sequence[ShellWord], state: State, node: Any
) -> MissingTarget | None:
    """The missing target of a ``cd`` or ``source``; None for any other command, or if it exists or is unknown."""
    name = words[0].value
    if name not in ("cd", "source", ".") or len(words) < 2:
        return None
    given = [word for word in words[1:] if name != "cd" or word.value not in ("-P", "-L", "--")]
    written = given[0].value if given else None
    if not written or written.startswith("-"):
        return None
    path = os.path.normpath(os.path.join(state.cwd, os.path.expanduser(written)))
    if path in state.made or path in state.written or path in state.copied or may_exist(path):
        return None
    if any(path.startswith(one + os.sep) for one in state.copied):
        return None
    sure = (
        state.cwd_known
        and not written.startswith(("/", "~"))
        and not shell.made_before
        and shell.in_main_script
        and _always_runs(shell, node)
    )
    if name == "cd":
        sure = sure and "CDPATH" not in state.variables
    else:
        # dash knows no `source`; a name without a slash is looked for in PATH first.
        sure = sure and not (shell.posix and name == "source")
        sure = sure and (os.sep in written or written.endswith((".sh", ".bash", ".env")))
    return MissingTarget(name, written, path, shell.place(node), sure and not _is_documented(path, written))


def may_make_files(words: Sequence[ShellWord], name: str | None = None) -> bool:
    """Whether a command may make files. ``name``: that of a command without effect on the shell."""
    values = [word.value for word in words]
    if name is None:
        return values[0] is None or os.path.basename(values[0]) not in _HARMLESS
    if name in _INSTALLERS:
        return any(value is None or "git+" in value or value in ("-t", "--target", "download") for value in values[1:])
    return name in _MAKING or (name == "mkdir" and None in values[1:])


def _always_runs(shell: ShellReader, node: Any) -> bool:
    """Whether the script runs a command whatever happens, as long as it gets to its line."""
    while node.parent is not None:
        above = node.parent
        if above.type not in _STRAIGHT:
            return False
        if above.type == "list" and above.named_children[0] != node:
            operators = [child.type for child in above.children if child.type in ("&&", "||")]
            first = shell.text(above.named_children[0])
            parts = re.split(r"&&|\|\|", first)
            if operators != ["&&"] or "||" in first or any(part.split()[:1][0] not in _BEFORE_AND for part in parts):
                return False
        node = above
    return bool(node.type == "program")


def is_left_to_users(path: str) -> bool:
    """Whether each user has to create the file: git ignores it, or there is an example of it."""
    return _is_named_in(path, (".gitignore",))


@lru_cache(maxsize=64)
def _is_documented(path: str, written: str) -> bool:
    """Whether a README, .gitignore or the like names the file.

    Where it is there from a folder above, these speak of that one: the command is typed in the wrong folder.
    """
    start = Path(path[: -len(os.path.normpath(written))] if path.endswith(os.path.normpath(written)) else path)
    if any(may_exist(folder / written) for folder in iter_parent_folders(start)):
        return False
    return _is_named_in(path, _TELLING)


@lru_cache(maxsize=64)
def _is_named_in(path: str, files: tuple[str, ...]) -> bool:
    """Whether one of these files of the project names the path."""
    missing = Path(path)
    while not may_exist(missing.parent):
        missing = missing.parent
    name = missing.name
    if name.startswith("."):
        return True  # .env: each user's own
    word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])".encode("utf-8", "surrogateescape"))
    for folder in iter_parent_folders(missing.parent):
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        for entry in entries:
            if entry.startswith(f"{name}.") and entry.endswith((".example", ".sample", ".template", ".dist")):
                return True
            if not entry.startswith(files):
                continue
            try:
                with open_for_reading(folder / entry) as file:
                    if word.search(file.read(_MAX_READ_BYTES)):
                        return True
            except OSError:
                continue
    return False
