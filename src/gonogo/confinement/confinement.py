"""The means that this machine has to confine a program, and the worlds of one rehearsal that are made by them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from gonogo.confinement.messages import CANNOT_CONFINE
from gonogo.confinement.secrets import secret_places
from gonogo.confinement.syscall_listener import OnCall, SyscallListener
from gonogo.confinement.trees import remove_tree
from gonogo.confinement.world import LayerRefused, Means, World, WorldRefused, WorldSpec
from gonogo.finding import translated
from gonogo.finding.errors import UserError

FORCED = "GONOGO_CONFINEMENT"
"""Environment variable: the only means that is tried."""
_MEANS_BY_PREFERENCE: tuple[Means, ...] = ("namespaces", "landlock")
_MIN_FREE_BYTES = 256 << 20


class Confinement:
    """The worlds of one rehearsal.

    ``scratch`` is its folder, of which programs see ``shared`` and ``readable`` only.
    """

    def __init__(self, scratch: Path, *, unconfined: bool = False) -> None:
        self.scratch = scratch.resolve()
        self.shared = self.scratch / "shared"
        """Programs see and write this folder as it is; gonogo reads what it finds here as a stranger's."""
        self.readable = self.scratch / "readable"
        """Programs can read this folder, and not write it."""
        for folder in (self.shared, self.readable):
            folder.mkdir(mode=0o755, exist_ok=True)
        self.means: Means | None = "none" if unconfined else None
        """What confines its worlds; None before the first one."""
        self.reasons: list[str] = []
        """Why a better means could not be had: what the kernel refused, as it said."""
        self._door: tuple[str, ...] | None = None
        """Through what the user namespaces of its worlds are made, empty for directly; None before the first one."""
        self._ancestors: dict[Path, set[Path]] = {}
        """With which trees the worlds of other trees began, and those with which."""
        self._layers: Path | None = None
        """Where the layers of its worlds are kept; None before the first one."""

    @contextlib.contextmanager
    def world(
        self, *, below: Sequence[Path] = (), prepared: Path | None = None, on_call: OnCall | None = None
    ) -> Iterator[World]:
        """A new world, ended with the block.

        It begins with the files of ``prepared``, and with what the ``below`` hold: trees of earlier worlds. ``on_call``
        is handed the system calls of programs that are traced.

        Raises UserError where this machine has no means to confine a program.
        """
        refused: list[str] = []
        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(SyscallListener(on_call)) if on_call is not None else None
            world = stack.enter_context(self.open_worlds(below, prepared, listening, refused))
            yield world

    @contextlib.contextmanager
    def open_worlds(
        self, below: Sequence[Path], prepared: Path | None, listener: SyscallListener | None, refusals: list[str]
    ) -> Iterator[World]:
        """As :meth:`world`; ``refusals`` is told what the kernel refuses of the means that are tried first."""
        base_trees = self._without_ancestors([*([] if prepared is None else [prepared]), *below])
        for means, door in self._means_candidates():
            for layers in self._places() if means == "namespaces" else (self.scratch / "worlds",):
                layers.mkdir(exist_ok=True)
                elsewhere = () if layers.is_relative_to(self.scratch) else (str(layers),)
                world = World(
                    WorldSpec(
                        means=means,
                        folder=Path(tempfile.mkdtemp(prefix="", dir=layers)),
                        private=self.scratch,
                        shared=(self.shared,),
                        readable=(self.readable,),
                        remapped=(os.getcwd(), os.path.expanduser("~"), "/var/tmp"),
                        hidden=() if means == "none" else (*secret_places(), *elsewhere),
                        door=door,
                        base_trees=base_trees,
                    ),
                    None if listener is None else listener.add,
                )
                try:
                    world.__enter__()
                except LayerRefused as why:
                    refusals.append(f"{means}: {why}")
                    continue
                except WorldRefused as why:
                    refusals.append(f"{' by '.join((means, *map(os.path.basename, door[:1])))}: {why}")
                    break
                if self.means is None or self._door is None:
                    self.reasons = list(refusals)
                self.means, self._door = means, door
                if means == "namespaces":
                    self._layers = layers
                self._ancestors[world.tree] = {
                    *base_trees,
                    *(ancestor for tree in base_trees for ancestor in self._ancestors.get(tree, ())),
                }
                try:
                    yield world
                finally:
                    world.close()
                return
        reasons = "; ".join(refusals) or (f"{FORCED}={os.environ.get(FORCED)}" if is_linux() else "not Linux")
        raise UserError(CANNOT_CONFINE.format(why=reasons))

    def _means_candidates(self) -> Iterator[tuple[Means, tuple[str, ...]]]:
        """The means to try, best first, and through what they are had."""
        if self.means is not None:
            yield self.means, self._door or ()
            return
        for means in _means_to_try():
            yield means, ()
            if means == "namespaces" and (door := _bubblewrap()):
                yield means, door

    @property
    def door(self) -> str:
        """The program that makes its user namespaces, by its path; empty: none is needed."""
        return self._door[0] if self._door else ""

    def _without_ancestors(self, trees: Sequence[Path]) -> tuple[Path, ...]:
        """Without those that a later one began with: what its programs deleted of them is not to come back."""
        return tuple(
            tree
            for number, tree in enumerate(trees)
            if not any(tree in self._ancestors.get(later, ()) for later in trees[number + 1 :])
        )

    def _places(self) -> Iterator[Path]:
        """Folders for what programs change: below the scratch folder, and in other file systems where that can't be."""
        if self._layers is not None:
            yield self._layers
            return
        yield self.scratch / "worlds"
        tried = {os.stat(self.scratch).st_dev}
        for folder in _temporary_folders():
            try:
                device = os.stat(folder).st_dev
                space = os.statvfs(folder)
                if device in tried or space.f_bavail * space.f_frsize < _MIN_FREE_BYTES:
                    continue
                tried.add(device)
                place = Path(os.path.realpath(tempfile.mkdtemp(prefix="gonogo-", dir=folder)))
            except OSError:
                continue
            weakref.finalize(self, remove_tree, place)
            yield place


def _temporary_folders() -> Iterator[str]:
    """Folders for temporary files that may be in another file system than TMPDIR is; memory last."""
    yield "/var/tmp"
    yield os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    yield os.path.expanduser("~")
    if os.environ.get("XDG_RUNTIME_DIR"):
        yield os.environ["XDG_RUNTIME_DIR"]
    yield "/dev/shm"


def _bubblewrap() -> tuple[str, ...]:
    """bubblewrap's command line before that of a program that is to have its own user namespace; empty: not to be had.

    An administrator may allow user namespaces to this program alone (a profile of AppArmor). It maps one user: root,
    to whom namespaces are rarely refused, would lose the others.
    """
    path = shutil.which("bwrap")
    if path is None or os.geteuid() == 0:
        return ()
    return (path, "--unshare-user", "--cap-add", "ALL", "--die-with-parent", "--dev-bind", "/", "/", "--")


def is_linux() -> bool:
    """Whether this kernel may have the means."""
    return sys.platform.startswith("linux")


class AvailableMeans(NamedTuple):
    """What would confine a program on this machine."""

    means: Means
    """``none``: nothing."""
    refused: str
    """What the kernel refused of better means."""
    door: str
    """The program through which the user namespaces are made; empty for none."""


def detect_means() -> AvailableMeans:
    """Try it: a world is made, in which nothing runs."""
    with tempfile.TemporaryDirectory(prefix="gonogo-", ignore_cleanup_errors=True) as folder:
        confinement = Confinement(Path(folder))
        refused: list[str] = []
        with contextlib.suppress(UserError), confinement.open_worlds((), None, None, refused):
            return AvailableMeans(confinement.means or "none", "; ".join(refused), confinement.door)
        return AvailableMeans("none", "; ".join(refused), "")


def raise_if_ended(world: World) -> None:
    """Raise UserError where a world was ended for the limit that its programs passed."""
    if world.limit is not None:
        raise UserError(world.limit)


def _means_to_try() -> Sequence[Means]:
    if not is_linux():
        return ()
    forced = os.environ.get(FORCED)
    if not forced:
        return _MEANS_BY_PREFERENCE
    known: tuple[Means, ...] = get_args(Means)
    found = [means for means in known if means == forced and means != "none"]
    if not found and forced != "none":
        names = ", ".join(known)
        raise UserError(
            translated("{name}={value}: must be one of {names}").format(name=FORCED, value=forced, names=names)
        )
    return found
