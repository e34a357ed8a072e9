"""Choose the means by which this machine can confine a program, and make a rehearsal's worlds with it."""

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
from gonogo.finding import UserError, translated

CONFINEMENT_VARIABLE = "GONOGO_CONFINEMENT"
"""Environment variable that names the only means to try."""
_MEANS_BY_PREFERENCE: tuple[Means, ...] = ("namespaces", "landlock")
_MIN_FREE_BYTES = 256 << 20
_MAX_SOCKET_PATH_BYTES = 107
"""Bytes of a Unix socket's path; the kernel refuses longer ones."""
_SOCKET_NAME_BYTES = 48
"""What programs add to TMPDIR for one: 32 bytes for ``multiprocessing``'s managers, 37 for a UUID."""
_RANK_FOLDER_BYTES = 32
"""What a rehearsal adds to the shared folder for a rank's temporary files."""


class Confinement:
    """The worlds of one rehearsal.

    ``scratch`` is its folder; programs see only ``shared`` and ``readable`` in it.
    """

    def __init__(self, scratch: Path, *, unconfined: bool = False) -> None:
        self.scratch = scratch.resolve()
        self.shared = self.scratch / "shared"
        """Programs can read and write this folder; gonogo treats its contents as untrusted."""
        self.readable = self.scratch / "readable"
        """Programs can read this folder but not write to it."""
        for folder in (self.shared, self.readable):
            folder.mkdir(mode=0o755, exist_ok=True)
        self.means: Means | None = "none" if unconfined else None
        """The means that confines its worlds; None before the first one."""
        self.reasons: list[str] = []
        """Why the kernel refused better means, in its own words."""
        self._namespace_helper: tuple[str, ...] | None = None
        """The command that creates the user namespaces, empty if none is needed; None before the first world."""
        self._ancestors: dict[Path, set[Path]] = {}
        """The trees that each world's tree was started with, directly or indirectly."""
        self._layers: Path | None = None
        """The folder for the layers of its worlds; None before the first one."""
        self._short_shared = self._short_link(self.shared)  # before the first world, so that all of them have it

    def short_path(self, folder: Path) -> Path:
        """A path of a folder in ``shared`` that leaves room for a socket's name, if one can be had."""
        return self._short_shared / folder.relative_to(self.shared)

    def _short_link(self, folder: Path) -> Path:
        """The folder, or a link to it where its path is too long for sockets."""
        if len(os.fsencode(folder)) + _RANK_FOLDER_BYTES + _SOCKET_NAME_BYTES <= _MAX_SOCKET_PATH_BYTES:
            return folder
        for place in ("/tmp", "/var/tmp"):
            try:
                links = Path(tempfile.mkdtemp(prefix="gonogo-", dir=place))
            except OSError:
                continue
            weakref.finalize(self, remove_tree, links)
            (links / "s").symlink_to(folder)
            return links / "s"
        return folder

    @contextlib.contextmanager
    def world(
        self, *, below: Sequence[Path] = (), prepared: Path | None = None, on_call: OnCall | None = None
    ) -> Iterator[World]:
        """A new world, which is closed at the end of the block.

        It starts with the files of ``prepared``, and those of ``below``: trees of earlier worlds. ``on_call`` gets
        the system calls of traced programs.

        Raises UserError if this machine has no means to confine a program.
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
        """Like :meth:`world`; refusals by the kernel of better means are appended to ``refusals``."""
        base_trees = self._without_ancestors([*([] if prepared is None else [prepared]), *below])
        for means, namespace_helper in self._means_candidates():
            for layers in self._layer_folders() if means == "namespaces" else (self.scratch / "worlds",):
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
                        namespace_helper=namespace_helper,
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
                    refusals.append(f"{' by '.join((means, *map(os.path.basename, namespace_helper[:1])))}: {why}")
                    break
                if self.means is None or self._namespace_helper is None:
                    self.reasons = list(refusals)
                self.means, self._namespace_helper = means, namespace_helper
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
        reasons = "; ".join(refusals) or (
            f"{CONFINEMENT_VARIABLE}={os.environ.get(CONFINEMENT_VARIABLE)}" if is_linux() else "not Linux"
        )
        raise UserError(CANNOT_CONFINE.format(why=reasons))

    def add_copy(self, tree: Path, original: Path) -> None:
        """Note that the tree is a changed copy of another one, which contains everything that one was started with."""
        self._ancestors[tree] = {original, *self._ancestors.get(original, ())}

    def _means_candidates(self) -> Iterator[tuple[Means, tuple[str, ...]]]:
        """The means to try, best first, each with the command that creates its user namespace (empty for none)."""
        if self.means is not None:
            yield self.means, self._namespace_helper or ()
            return
        for means in _means_to_try():
            yield means, ()
            if means == "namespaces" and (namespace_helper := _bubblewrap()):
                yield means, namespace_helper

    @property
    def namespace_helper(self) -> str:
        """The path of the program that creates the user namespaces; empty if none is needed."""
        return self._namespace_helper[0] if self._namespace_helper else ""

    def _without_ancestors(self, trees: Sequence[Path]) -> tuple[Path, ...]:
        """The trees without ancestors of later ones, so that files deleted in those don't reappear."""
        return tuple(
            tree
            for number, tree in enumerate(trees)
            if not any(tree in self._ancestors.get(later, ()) for later in trees[number + 1 :])
        )

    def _layer_folders(self) -> Iterator[Path]:
        """Folders for the files that programs change: in the scratch folder, or else in other file systems."""
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
    """Folders for temporary files that may be in another file system than TMPDIR; tmpfs comes last."""
    yield "/var/tmp"
    yield os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    yield os.path.expanduser("~")
    if os.environ.get("XDG_RUNTIME_DIR"):
        yield os.environ["XDG_RUNTIME_DIR"]
    yield "/dev/shm"


def _bubblewrap() -> tuple[str, ...]:
    """The bubblewrap command line that starts a program in its own user namespace; empty if unavailable.

    An administrator may allow user namespaces to this program alone (an AppArmor profile). It maps a single user:
    root, to whom namespaces are rarely refused, would lose all others.
    """
    path = shutil.which("bwrap")
    if path is None or os.geteuid() == 0:
        return ()
    return (path, "--unshare-user", "--cap-add", "ALL", "--die-with-parent", "--dev-bind", "/", "/", "--")


def is_linux() -> bool:
    """Whether the system is Linux, which all means of confinement need."""
    return sys.platform.startswith("linux")


class AvailableMeans(NamedTuple):
    """The means of confinement available on this machine."""

    means: Means
    """``none`` if there are none."""
    refused: str
    """Why the kernel refused better means."""
    namespace_helper: str
    """The program that creates the user namespaces; empty if none is needed."""


def detect_means() -> AvailableMeans:
    """Find the available means by making an empty world."""
    with tempfile.TemporaryDirectory(prefix="gonogo-", ignore_cleanup_errors=True) as folder:
        confinement = Confinement(Path(folder))
        refused: list[str] = []
        with contextlib.suppress(UserError), confinement.open_worlds((), None, None, refused):
            return AvailableMeans(confinement.means or "none", "; ".join(refused), confinement.namespace_helper)
        return AvailableMeans("none", "; ".join(refused), "")


def raise_if_ended(world: World) -> None:
    """Raise UserError if a world was ended because its programs exceeded a limit."""
    if world.limit is not None:
        raise UserError(world.limit)


def _means_to_try() -> Sequence[Means]:
    if not is_linux():
        return ()
    forced = os.environ.get(CONFINEMENT_VARIABLE)
    if not forced:
        return _MEANS_BY_PREFERENCE
    known: tuple[Means, ...] = get_args(Means)
    found = [means for means in known if means == forced and means != "none"]
    if not found and forced != "none":
        names = ", ".join(known)
        raise UserError(
            translated("{name}={value}: must be one of {names}").format(
                name=CONFINEMENT_VARIABLE, value=forced, names=names
            )
        )
    return found
