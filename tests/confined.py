"""Worlds for tests: a program writes wherever it likes, and the test reads what it has written."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gonogo.confinement.confinement import Confinement
from gonogo.confinement.world import Means, World

_MAX_OPEN = 8
_OPEN: dict[Path, ConfinedRuns] = {}


class ConfinedRuns:
    """The world in which the programs of one folder run, one after the other; each sees what the earlier ones wrote."""

    def __init__(self, folder: Path) -> None:
        scratch = folder.parent / f"{folder.name}-scratch"
        scratch.mkdir()
        self._confinement = Confinement(scratch)
        self._stack = contextlib.ExitStack()
        self.world: World = self._stack.enter_context(self._confinement.world())
        (self.shared / "tmp").mkdir()

    @property
    def means(self) -> Means:
        """What confines the programs."""
        return self.world.spec.means

    @property
    def shared(self) -> Path:
        """The folder that programs see and write as it is; ``tmp`` in it is for their temporary files."""
        return self._confinement.shared

    def written(self, path: Path) -> Path:
        """Where a file lies that a program wrote at that path."""
        return self.world.tree / path.absolute().relative_to("/")

    def files(self) -> list[Path]:
        """All files that programs wrote outside the shared folder."""
        return [path for path in self.world.tree.rglob("*") if path.is_file()]

    def close(self) -> None:
        """End the world; what was written stays."""
        self._stack.close()


def runs_of(folder: Path) -> ConfinedRuns:
    """The world for what runs in a folder; its scratch folder lies beside it. The last few stay open."""
    if folder not in _OPEN:
        for oldest in list(_OPEN)[: 1 - _MAX_OPEN]:
            _OPEN.pop(oldest).close()
        _OPEN[folder] = ConfinedRuns(folder)
    return _OPEN[folder]


@contextlib.contextmanager
def a_world() -> Iterator[World]:
    """A world of its own, with a scratch folder of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="gonogo-", ignore_cleanup_errors=True) as folder,
        Confinement(Path(folder)).world() as world,
    ):
        yield world
