"""Trees that mirror the root folder: changes made in a world (an overlayfs upper directory), or files added to it.

overlayfs marks a deleted file by a 0:0 device, and an opaque folder, which hides everything below, by an attribute.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

_BLOCK_BYTES = 1 << 20
_XATTR_PREFIX = "user."
OPAQUE = "user.overlay.opaque"


def is_whiteout(place: str | Path) -> bool:
    """Whether a path of a tree says that the file or folder was deleted."""
    try:
        state = os.lstat(place)
    except OSError:
        return False
    return stat.S_ISCHR(state.st_mode) and state.st_rdev == 0


def make_whiteout(place: str | Path) -> None:
    """Say in a tree that the file or folder was deleted."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    os.mknod(place, stat.S_IFCHR | 0o000, 0)


def unhide_below(place: str | Path) -> None:
    """Let the contents of lower trees show through a folder that was removed and made again."""
    with contextlib.suppress(OSError):  # it has no such mark
        os.removexattr(place, OPAQUE)


def mirror_folder(tree: Path, folder: str) -> Path:
    """Make a folder of the tree and its parents, with the visible modes and times of the real ones."""
    for place in (*reversed(Path(folder).parents), Path(folder)):
        made = Path(f"{tree}{place}")
        if made.exists():
            continue
        made.mkdir(parents=True)
        with contextlib.suppress(OSError):
            shutil.copystat(place, made)
            if os.geteuid() == 0:
                state = os.stat(place)
                os.chown(made, state.st_uid, state.st_gid)
    return Path(f"{tree}{folder}")


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree over another one, including overlayfs marks, modes, owners, times, links and holes."""
    linked: dict[tuple[int, int], Path] = {}
    folders = []
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        here, there = Path(f"{source}/{inside}"), Path(f"{target}/{inside}")
        if not there.is_dir() or there.is_symlink():
            _remove_path(there)
            there.mkdir(parents=True)
        state = here.lstat()
        folders.append((here, there, state))
        _add_owner_rights(here, state, 0o700)
        for entry in _scan_folder(str(here)):  # empty if the path is too long for the kernel
            name = entry.name
            path, place = here / name, there / name
            state = path.lstat()
            if stat.S_ISDIR(state.st_mode):
                waiting.append(f"{inside}/{name}")
                continue
            _remove_path(place)
            first = linked.get((state.st_dev, state.st_ino))
            if first is not None:
                os.link(first, place, follow_symlinks=False)
                continue
            if state.st_nlink > 1:
                linked[state.st_dev, state.st_ino] = place
            copy_entry(path, place, state)
    for here, there, state in reversed(folders):
        _copy_file_metadata(here, there, state)


def _remove_path(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        remove_tree(place)
    else:
        place.unlink(missing_ok=True)


def copy_entry(path: Path, place: Path, state: os.stat_result) -> None:
    """Copy an entry that is not a folder, with its mode, owner and times; ``state`` is its lstat."""
    if stat.S_ISLNK(state.st_mode):
        place.symlink_to(os.readlink(path))
    elif stat.S_ISREG(state.st_mode):
        _add_owner_rights(path, state, 0o400)
        copy_with_holes(path, place)
    elif stat.S_ISCHR(state.st_mode) and state.st_rdev == 0:
        os.mknod(place, stat.S_IFCHR | 0o000, 0)
        return
    elif stat.S_ISFIFO(state.st_mode):
        os.mkfifo(place)
    else:  # a socket: nobody listens on it any more
        return
    _copy_file_metadata(path, place, state)


def _copy_file_metadata(path: Path, place: Path, state: os.stat_result) -> None:
    link = stat.S_ISLNK(state.st_mode)
    with contextlib.suppress(OSError):
        for name in os.listxattr(path, follow_symlinks=False):
            if name.startswith(_XATTR_PREFIX):
                os.setxattr(place, name, os.getxattr(path, name, follow_symlinks=False), follow_symlinks=False)
    with contextlib.suppress(OSError):
        if os.geteuid() == 0:
            os.chown(place, state.st_uid, state.st_gid, follow_symlinks=False)
        if not link:
            os.chmod(place, stat.S_IMODE(state.st_mode))
        os.utime(place, ns=(state.st_atime_ns, state.st_mtime_ns), follow_symlinks=False)


def _add_owner_rights(path: Path, state: os.stat_result, rights: int) -> None:
    """Add access rights for the owner, which a program may have removed."""
    if state.st_mode & rights != rights:
        with contextlib.suppress(OSError):
            os.chmod(path, stat.S_IMODE(state.st_mode) | rights)


def copy_with_holes(source: str | Path, target: str | Path) -> None:
    """Copy a file without its holes: weight files made by gonogo are sparse, up to a terabyte long."""
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(reading, "rb"), open(target, "wb") as copy:
        copy_data(reading, copy.fileno(), os.fstat(reading).st_size)


def copy_data(source_fd: int, target_fd: int, size: int) -> None:
    """Copy the data of a file of ``size`` bytes to an empty one, leaving out its holes."""
    for start, end in data_segments(source_fd, size):
        at = start
        while at < end:
            block = os.pread(source_fd, min(end - at, _BLOCK_BYTES), at)
            if not block:
                break
            os.pwrite(target_fd, block, at)
            at += len(block)
    os.ftruncate(target_fd, size)


def data_segments(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """The data segments of a file of ``size`` bytes, as (start, end), without its holes."""
    at = 0
    while at < size:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:  # only a hole follows
            return
        end = os.lseek(descriptor, at, os.SEEK_HOLE)
        yield at, end
        at = end


def disk_usage(folder: Path) -> int:
    """Disk usage of all files below a folder in bytes; unreadable files count as 0."""
    return sum(state.st_blocks * 512 for _, state in files_below(folder))


def files_below(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """(path, lstat) of all readable regular files below a folder; links are not followed."""
    waiting = [str(folder)]
    while waiting:
        for entry in _scan_folder(waiting.pop()):
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    yield entry.path, entry.stat(follow_symlinks=False)


def _scan_folder(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def remove_tree(folder: Path) -> None:
    """Remove a folder written by a program, regardless of modes, links and depth.

    Subfolders are moved to the top before they are emptied, since their paths may be too long for the kernel.
    """
    top = str(folder)
    waiting = [top]
    moved = 0
    while waiting:
        path = waiting.pop()
        with contextlib.suppress(OSError):
            os.chmod(path, 0o700)
        for entry in _scan_folder(path):
            if not entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
                continue
            moved += 1
            below = entry.path
            if path != top:
                with contextlib.suppress(OSError):  # moving a folder needs write access to it, since its ".." changes
                    os.chmod(below, 0o700)
                below = os.path.join(top, f".{os.getpid()}-{moved}")
                try:
                    os.rename(entry.path, below)
                except OSError:
                    below = entry.path
            waiting.append(below)
        if path != top:
            with contextlib.suppress(OSError):
                os.rmdir(path)
    with contextlib.suppress(OSError):
        os.rmdir(top)
