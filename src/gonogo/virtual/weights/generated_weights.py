"""What stands in for absent weights: made by one rank, in the model's folder or, where that can't be, in a copy of it.

Each rank would make the same; but one that tidies up before it puts its files in place takes away those that another
has just begun to read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class GeneratedWeights:
    """Where weights are made, and who is told of them."""

    scratch: str
    """A folder of gonogo's that the ranks share."""
    in_place: bool
    """Whether a model's own folder may be written: it is one that is thrown away after the rehearsal."""
    tell: Callable[[str], None]
    not_for: frozenset[str] = frozenset()
    """Folders that the run itself has written: what it has not saved is not made."""

    def belongs_to_run(self, folder: str) -> bool:
        """Whether an earlier life, or a stage after it, has written the folder."""
        return os.path.abspath(folder) in self.not_for

    def once(self, path: str, make: Callable[[], str | None]) -> None:
        """Have ``make`` run by one of the processes that share the scratch folder, while the others wait for it.

        ``path`` names what is made. ``make`` sees whether it is there, and answers what it made in a sentence, or None.
        Each process tells the same sentence.
        """
        os.makedirs(self.scratch, exist_ok=True)
        record = os.open(f"{self.scratch}/.made-{_digest(path)}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(record, fcntl.LOCK_EX)
            said = os.pread(record, 1 << 16, 0).decode()
            if not said:
                said = make() or ""
                os.pwrite(record, said.encode(), 0)
        finally:
            os.close(record)
        if said:
            self.tell(said)

    def writable(self, folder: str) -> str:
        """The folder itself where it can be written; else a folder of links to what is in it, made now."""
        if self._is_in_scratch(folder) or (self.in_place and _is_writable(folder)):
            return folder
        copy = self._copy_folder(folder)
        os.makedirs(copy, exist_ok=True)
        for name in os.listdir(folder):
            with contextlib.suppress(FileExistsError):
                os.symlink(os.path.join(os.path.abspath(folder), name), os.path.join(copy, name))
        return copy

    def place_of(self, folder: str) -> str:
        """The folder in which a model's weights are by now: its own, or the copy that :meth:`writable` made."""
        copy = self._copy_folder(folder)
        return copy if not self._is_in_scratch(folder) and os.path.isdir(copy) else folder

    def _is_in_scratch(self, folder: str) -> bool:
        return os.path.abspath(folder).startswith(f"{self.scratch}/")

    def _copy_folder(self, folder: str) -> str:
        return os.path.join(self.scratch, "models", _digest(folder), os.path.basename(os.path.abspath(folder)))


def _digest(path: str) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:24]


def _is_writable(folder: str) -> bool:
    """Tried, not asked: ``access`` knows nothing of Landlock."""
    path = os.path.join(folder, f".gonogo-{os.getpid()}")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return True
    except OSError:
        return False
    os.unlink(path)
    return True
