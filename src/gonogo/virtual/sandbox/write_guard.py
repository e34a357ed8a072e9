"""The kernel refuses this process, and its children, to write anywhere but in scratch (Linux's Landlock).

The overlay maps what Python writes; this is for what it doesn't see: compiled writers and child processes. They get
EACCES, which is reported, instead of changing the user's files. Can't be undone for the process.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PR_SET_NO_NEW_PRIVS = 38
_RULE_PATH_BENEATH = 1
_VERSION = 1
# include/uapi/linux/landlock.h, LANDLOCK_ACCESS_FS_*: all that change a file or folder.
_WRITE_FILE, _REMOVE_DIR, _REMOVE_FILE = 1 << 1, 1 << 4, 1 << 5
_MAKE = sum(1 << bit for bit in range(6, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def guard_writes(writable: Iterable[str]) -> bool:
    """Allow writing below the ``writable`` folders, ``/dev`` and ``/proc`` only. False where the kernel can't."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    if abi < 2:  # the first version forbids every move between folders
        return False
    access = _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE | _REFER | (_TRUNCATE if abi >= 3 else 0)
    handled = ctypes.c_uint64(access)
    ruleset = libc.syscall(
        _CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(ctypes.sizeof(handled)), ctypes.c_uint32(0)
    )
    if ruleset < 0:
        return False
    try:
        for folder in (*writable, "/dev", "/proc"):
            fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                rule = _PathBeneath(access, fd)
                if libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0)) != 0:
                    return False
            finally:
                os.close(fd)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            return False
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)) == 0)
    finally:
        os.close(ruleset)
