"""Landlock: a process, and all that it starts, reads and writes only what it is given. For kernels without namespaces."""

import ctypes
import os

import kernel

_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_PATH_BENEATH = 1
# include/uapi/linux/landlock.h, LANDLOCK_ACCESS_FS_*
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_CHANGE = sum(1 << bit for bit in range(4, 13))  # remove a folder or file, make one of any kind
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_SCOPES = 3  # abstract sockets, signals
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version():
    """Version of Landlock's interface; 0 where the kernel has none."""
    try:
        return kernel.call("landlock_create_ruleset", 0, 0, _VERSION)
    except OSError:
        return 0


def scopes_signals():
    """Whether it keeps signals among the confined processes (Linux 6.12)."""
    return version() >= 6


def restrict(writable, hidden):
    """From here on: write below ``writable`` only, read anything but ``hidden`` and devices.

    Raises OSError where the kernel can't (Landlock's first version forbids every move between folders).
    """
    known = version()
    if known < 2:
        raise OSError(38, f"Landlock {known or 'is off'}, 2 is needed")
    writing = _WRITE_FILE | _CHANGE | _REFER | (_TRUNCATE if known >= 3 else 0) | (_IOCTL_DEV if known >= 5 else 0)
    reading = _EXECUTE | _READ_FILE | _READ_DIR
    attributes = (ctypes.c_uint64 * 3)(writing | reading, 3 if known >= 4 else 0, _SCOPES if known >= 6 else 0)
    size = 8 if known < 4 else 16 if known < 6 else 24
    ruleset = kernel.call("landlock_create_ruleset", attributes, size, 0)
    try:
        _allow(ruleset, "/", _READ_DIR)
        for path in _all_but(["/dev", *hidden]):
            _allow(ruleset, path, _EXECUTE | _READ_FILE)
        for folder in writable:
            _allow(ruleset, folder, writing | reading)
        for device in DEVICES:
            _allow(ruleset, device, _READ_FILE | _WRITE_FILE | writing & _TRUNCATE)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _all_but(hidden):
    """Paths that together are all that there is now, but for ``hidden``: rules can only add."""
    hidden = {os.path.realpath(path) for path in hidden}
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


def _allow(ruleset, path, access):
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= _OF_FILES
        kernel.call("landlock_add_rule", ruleset, _PATH_BENEATH, _PathBeneath(access, descriptor), 0)
    finally:
        os.close(descriptor)
