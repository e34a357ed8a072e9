"""The texts of a launch's files: the command, its scripts and configs, the program and its modules.

Nothing is run, so files that only a run would determine are not found: this is for searching the launch's files for
words.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence

from gonogo.evidence.launch.command_words import is_python
from gonogo.evidence.paths import open_for_reading

_MAX_FILES = 200
_MAX_BYTES = 4 << 20
_MAX_FILE_BYTES = 1 << 20
_MAX_PATH_CHECKS = 5000
_SHELL_SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm", ".env", ".mk")
_CONFIG_SUFFIXES = (".yaml", ".yml", ".json", ".jsonc", ".toml", ".cfg", ".ini", ".conf")
_PATH_WORD_PATTERN = re.compile(r"[\w./~${}@%+-]{2,4096}")
_SOURCED_SCRIPT_PATTERN = re.compile(
    r"(?:^|[ \t;&|(])(?:source|\.|bash|sh)[ \t]+[\"']?([\w./~${}-]{1,4096})", re.MULTILINE
)
_IMPORT_PATTERN = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]{1,400})[ \t]+import[ \t]+\(?([^\n#]{0,2000})|import[ \t]+([^\n#]{1,2000}))",
    re.MULTILINE,
)
_MODULE_OPTION_PATTERN = re.compile(r"(?:^|[ \t])-m[ \t]*([A-Za-z_][\w.]{0,400})", re.MULTILINE)
_VARIABLE_PATTERN = re.compile(r"\$(?:\{[^}]*\}?|\w+)")


def launch_source_texts(command: Sequence[str], cwd: str) -> Iterator[str]:
    """The texts of a launch from a folder, the command's own words first, within limits on number and size."""
    yield "\n".join(command)
    walk = _FileWalk(cwd)
    for word in command:
        walk.add_path(word.partition("=")[2] if word.startswith("-") and "=" in word else word, cwd)
    for word, after in itertools.pairwise(command):
        if word == "-m":
            walk.add_module(after, cwd)
    yield from walk.read_texts()


class _FileWalk:
    """Reads the files that a command names, then those that they name or import, breadth first."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._waiting: deque[str] = deque()
        self._seen: set[str] = set()
        self._looks = 0
        self._roots = [cwd, os.path.join(cwd, "src")]
        """Folders that the program's modules are found in."""

    def read_texts(self) -> Iterator[str]:
        room, files = _MAX_BYTES, 0
        while self._waiting and room > 0 and files < _MAX_FILES:
            path = self._waiting.popleft()
            text = _read_text_start(path, min(room, _MAX_FILE_BYTES))
            if text is None:
                continue
            room -= len(text)
            files += 1
            yield text
            self._follow_text(text, path)

    def _follow_text(self, text: str, path: str) -> None:
        folder = os.path.dirname(path)
        if path.endswith(".py"):
            if folder not in self._roots and not os.path.isfile(os.path.join(folder, "__init__.py")):
                self._roots.append(folder)
            self._follow_imports(text, folder)
            return
        for word in _PATH_WORD_PATTERN.findall(text):
            if word.endswith((".py", *_SHELL_SUFFIXES, *_CONFIG_SUFFIXES)):
                self.add_path(word, folder)
        if not path.endswith(_CONFIG_SUFFIXES):
            for word in _SOURCED_SCRIPT_PATTERN.findall(text):
                self.add_path(word, folder)
            for module in _MODULE_OPTION_PATTERN.findall(text):
                self.add_module(module, folder)

    def _follow_imports(self, text: str, folder: str) -> None:
        for origin, names, modules in _IMPORT_PATTERN.findall(text):
            if origin:
                base = origin.lstrip(".")
                place = folder
                for _ in range(len(origin) - len(base) - 1):
                    place = os.path.dirname(place)
                roots = [place] if origin.startswith(".") else self._roots
                imported = [base, *(f"{base}.{name}".lstrip(".") for name in _imported_names(names))]
            else:
                roots, imported = self._roots, _imported_names(modules)
            for module in imported:
                self._add_submodule(module, roots)

    def add_path(self, word: str, folder: str) -> None:
        """Add the file that a word names, relative to the launch's folder or this one; also after ``$VARIABLE/``."""
        if "\0" in word or len(word) > 4096:
            return
        bare = _VARIABLE_PATTERN.sub("", word)
        if bare != word:
            bare = bare.lstrip("/")
        for place in dict.fromkeys((self._cwd, folder)):
            if bare and self._add_file(os.path.join(place, os.path.expanduser(bare))):
                return

    def add_module(self, name: str, folder: str) -> None:
        """Add a module that is run with ``-m``."""
        self._add_submodule(name, [*self._roots, folder])
        self._add_submodule(f"{name}.__main__", [*self._roots, folder])

    def _add_submodule(self, module: str, roots: Sequence[str]) -> None:
        parts = module.split(".")
        if not all(part.isidentifier() for part in parts):
            return
        for root in roots:
            path = os.path.join(root, *parts)
            if self._add_file(f"{path}.py") or self._add_file(os.path.join(path, "__init__.py")):
                return

    def _add_file(self, path: str) -> bool:
        path = os.path.normpath(path)
        if path in self._seen:
            return True
        self._looks += 1
        if self._looks > _MAX_PATH_CHECKS or not os.path.isfile(path) or is_python(os.path.basename(path)):
            return False
        self._seen.add(path)
        self._waiting.append(path)
        return True


def _imported_names(import_list: str) -> list[str]:
    """The names in ``a, b.c as d``."""
    return [word for part in import_list.strip("() \t\r").split(",") for word in part.split()[:1]]


def _read_text_start(path: str, max_bytes: int) -> str | None:
    """The beginning of a text file; None if it can't be read or isn't text."""
    try:
        with open_for_reading(path) as file:
            data = file.read(max_bytes)
    except OSError:
        return None
    return None if b"\0" in data[:4096] else data.decode("utf-8", "replace")
