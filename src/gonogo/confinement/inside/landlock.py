"""Landlock: restrict a process and its children to given files. Used if namespaces are unavailable."""

import ctypes
import os

from . import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_CREATE_RULESET_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_RULE_PATH_BENEATH = 1
# include/uapi/linux/landlock.h, LANDLOCK_ACCESS_FS_*
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_CREATE_REMOVE_RIGHTS = sum(1 << bit for bit in range(4, 13))  # remove a folder or file, make one of any kind
_MAKE_DEVICE_RIGHTS = 1 << 6 | 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_SCOPES, _SCOPE_SIGNALS = 3, 2  # abstract sockets and signals
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class _PathBeneath(ctypes.Structure):
    """C's ``struct landlock_path_beneath_attr``."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def abi_version() -> int:
    """The version of the Landlock ABI; 0 if the kernel has none."""
    try:
        return kernel.call("landlock_create_ruleset", 0, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def scopes_signals() -> bool:
    """Whether Landlock can restrict signals to the confined processes (Linux 6.12)."""
    return abi_version() >= 6


def restrict(writable: list[str], readable: list[str], hidden: list[str]) -> None:
    """Allow writing only below ``writable``, and reading all but devices and ``hidden``, plus all of ``readable``.

    Raises OSError if the kernel can't (Landlock's first version forbids all moves between folders).
    """
    known = abi_version()
    if known < 2:
        raise OSError(38, f"Landlock {known or 'is off'}, 2 is needed")
    writing = (
        _WRITE_FILE
        | _CREATE_REMOVE_RIGHTS
        | _REFER
        | (_TRUNCATE if known >= 3 else 0)
        | (_IOCTL_DEV if known >= 5 else 0)
    )
    reading = _EXECUTE | _READ_FILE | _READ_DIR
    attributes = (ctypes.c_uint64 * 3)(writing | reading, 3 if known >= 4 else 0, _SCOPES if known >= 6 else 0)
    size = 8 if known < 4 else 16 if known < 6 else 24
    ruleset = kernel.call("landlock_create_ruleset", attributes, size, 0)
    try:
        _allow_path(ruleset, "/", _READ_DIR)
        for path in _paths_except(["/dev", *hidden]):
            _allow_path(ruleset, path, _EXECUTE | _READ_FILE)
        for folder in readable:
            _allow_path(ruleset, folder, reading)
        for folder in writable:
            _allow_path(ruleset, folder, (writing & ~_MAKE_DEVICE_RIGHTS) | reading)
        for device in DEVICES:
            _allow_path(ruleset, device, _READ_FILE | _WRITE_FILE | writing & _TRUNCATE)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def keep_signals_inside() -> bool:
    """Restrict this process's signals to itself and its future children; False if the kernel can't.

    Nothing else is restricted.
    """
    if not scopes_signals():
        return False
    # A ruleset that doesn't handle moves between folders denies them, even if it restricts no files.
    attributes = (ctypes.c_uint64 * 3)(_REFER, 0, _SCOPE_SIGNALS)
    try:
        ruleset = kernel.call("landlock_create_ruleset", attributes, 24, 0)
    except OSError:
        return False
    try:
        _allow_path(ruleset, "/", _REFER)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.call("landlock_restrict_self", ruleset, 0)
    except OSError:
        return False
    finally:
        os.close(ruleset)
    return True


def _paths_except(paths: "Iterable[str]") -> "Iterator[str]":
    """Paths that together cover all files except ``paths``, since Landlock rules can only allow."""
    hidden = {os.path.realpath(path) for path in paths}
    waiting = ["/"]
    while waiting:
        folder = waiting.pop()
        below = folder if folder.endswith("/") else folder + "/"
        if not any(path.startswith(below) for path in hidden):
            yield folder
            continue
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            if entry.path in hidden or entry.is_symlink():
                continue
            if entry.is_dir():
                waiting.append(entry.path)
            else:
                yield entry.path


def _allow_path(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= _FILE_RIGHTS
        kernel.call("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, _PathBeneath(access, descriptor), 0)
    finally:
        os.close(descriptor)
