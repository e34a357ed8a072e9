"""The files of a folder that are relevant to a run: found by name and content, each read once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path

from gonogo.evidence.paths import is_file, iter_parent_folders, open_for_reading
from gonogo.evidence.source_file import SourceFile, display_path
from gonogo.finding import Skipped, Text, UserError


class FileKind(str, Enum):
    """What a file may contain, judged by its name."""

    PYTHON = "python"
    SHELL = "shell"
    JSON = "json"
    YAML = "yaml"
    ENVIRONMENT = "environment"


_KIND_BY_SUFFIX = {
    ".py": FileKind.PYTHON,
    ".sh": FileKind.SHELL,
    ".bash": FileKind.SHELL,
    ".sbatch": FileKind.SHELL,
    ".slurm": FileKind.SHELL,
    ".json": FileKind.JSON,
    ".jsonc": FileKind.JSON,
    ".json5": FileKind.JSON,
    ".yaml": FileKind.YAML,
    ".yml": FileKind.YAML,
}
LOCK_FILES = ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock")
"""Files that say what one of the others comes to."""
ENVIRONMENT_FILES = (
    *(*LOCK_FILES, "requirements.txt", "environment.yml", "environment.yaml"),
    *("conda.yml", "conda.yaml", "Dockerfile", "pyproject.toml", "setup.py", "setup.cfg"),
)
"""Files that state the versions of a run's packages, the most reliable first."""

_SETUP_SCRIPTS = ("setup*.sh", "install*.sh", "setup/*.sh")
"""Scripts that install a project's dependencies."""

_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "node_modules", "site-packages", "dist-packages", "venv", "env", "build", "dist", "wandb", "runs"}
)
_MAX_CONFIG_BYTES = 1 << 20
"""Maximum size of a JSON or YAML file found in a folder, in bytes; a larger one is data."""


class Files:
    """The files that a check has read, by path. Files that can't be read are listed in :attr:`skipped`."""

    def __init__(self, base: Path) -> None:
        self.base = base
        """The folder that displayed paths are relative to."""
        self.sources: dict[str, SourceFile] = {}
        """By displayed path."""
        self.skipped: list[Skipped] = []
        self._by_path: dict[str, SourceFile | None] = {}

    def display_path(self, path: Path | str) -> str:
        """The path as shown in reports: relative to :attr:`base` if it is below it, otherwise absolute."""
        return display_path(path, self.base)

    def read(self, path: Path | str) -> SourceFile | None:
        """Read a file, once; None if it can't be read, which adds an entry to :attr:`skipped`."""
        whole = os.path.abspath(path)
        if whole not in self._by_path:
            shown = self.display_path(path)
            try:
                source = SourceFile.read(whole)
                source.path = shown
                self._by_path[whole] = self.sources[shown] = source
            except UserError as error:
                self._by_path[whole] = None
                self.skipped.append(Skipped(Text(shown, shown), error.text))
        return self._by_path[whole]


def kind_of(path: Path) -> FileKind | None:
    """The kind of a file, by its name; a file without a suffix is a shell script if its first line says so."""
    name = path.name
    if name == "setup.cfg" and not _lists_requirements(path):
        return None
    if name in ENVIRONMENT_FILES or (name.startswith(("requirements", "Dockerfile")) and path.suffix != ".py"):
        return FileKind.ENVIRONMENT
    if kind := _KIND_BY_SUFFIX.get(path.suffix.lower()):
        return kind
    if not path.suffix:
        try:
            with open_for_reading(path) as file:
                first = file.readline(200)
        except OSError:
            return None
        if first.startswith(b"#!") and any(shell in first for shell in (b"sh\n", b"sh ", b"sh\r", b"bash", b"zsh")):
            return FileKind.SHELL
    return None


def _lists_requirements(path: Path) -> bool:
    """Whether a ``setup.cfg`` belongs to a package; many only configure tools."""
    try:
        with open_for_reading(path) as file:
            return b"install_requires" in file.read(_MAX_CONFIG_BYTES)
    except OSError:
        return False


def walk(folder: Path, excluded: Callable[[str], bool], problems: list[Skipped]) -> Iterator[tuple[Path, FileKind]]:
    """The relevant files below a folder, in path order.

    Hidden folders, virtual environments, caches and data files are skipped, and links to folders are not followed.
    """

    def on_error(error: OSError) -> None:
        path = str(error.filename)
        problems.append(Skipped(Text(path, path), Text(error.strerror or "?", error.strerror or "?")))

    for parent, folders, names in os.walk(folder, onerror=on_error):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED_FOLDERS
            and not os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))
            and not excluded(os.path.join(parent, name))
        )
        for name in sorted(names):
            path = Path(parent, name)
            kind = kind_of(path)
            if kind is None or excluded(str(path)) or not is_file(path):
                continue
            if kind in (FileKind.JSON, FileKind.YAML) and path.stat().st_size > _MAX_CONFIG_BYTES:
                continue
            yield path, kind


def environment_files(folders: Sequence[Path]) -> Iterator[Path]:
    """The files that may state a run's versions: in those folders, then in the parents of the first one.

    Parents are searched up to the root of its repository, or not at all outside a repository.
    """
    above = iter_parent_folders(folders[0]) if folders else ()
    for folder in dict.fromkeys((*folders, *above)):
        for name in ENVIRONMENT_FILES:
            path = folder / name
            if is_file(path):
                yield path
        for pattern in _SETUP_SCRIPTS:
            yield from sorted(path for path in folder.glob(pattern) if is_file(path))
