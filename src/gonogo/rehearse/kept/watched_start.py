"""``python -I -S watched_start.py SOCKET opens|looks COMMAND…``: becomes COMMAND; the kernel tells what it asks for.

A filter of system calls (Linux's seccomp, with user notification) has this process, and all that it starts, wait at
each call that names a file until the process that listens has taken the name down; the calls are not changed. It
listens by a descriptor that is sent through SOCKET. ``opens``: only what opens or starts a file; ``looks``: also what
only looks whether it is there, which is ten times as much. Where the kernel has no such filter, or another one is in
place, nothing is sent, and COMMAND runs as it would.

Imports nothing of gonogo's: it has to start in a few milliseconds, under any Python.
"""

import ctypes
import os
import platform
import socket
import struct
import sys

LOOKS = frozenset(
    {"stat", "lstat", "access", "readlink", "newfstatat", "readlinkat", "faccessat", "statx", "faccessat2"}
)
# (architecture as the kernel names it, seccomp's own number, the calls that name a file or reach a network).
_X86 = (
    0xC000003E,
    317,
    {
        "open": 2, "stat": 4, "lstat": 6, "access": 21, "connect": 42, "execve": 59, "readlink": 89, "openat": 257,
        "newfstatat": 262, "readlinkat": 267, "faccessat": 269, "execveat": 322, "statx": 332, "io_uring_setup": 425,
        "openat2": 437, "faccessat2": 439,
    },
)  # fmt: skip
_ARM = (
    0xC00000B7,
    277,
    {
        "faccessat": 48, "openat": 56, "readlinkat": 78, "newfstatat": 79, "connect": 203, "execve": 221,
        "execveat": 281, "statx": 291, "io_uring_setup": 425, "openat2": 437, "faccessat2": 439,
    },
)  # fmt: skip
MACHINES = {"x86_64": _X86, "aarch64": _ARM}
_FLAGS_ARGUMENT = {"newfstatat": 3, "statx": 2}
_AT_EMPTY_PATH = 0x1000  # of a descriptor that is open already
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_SET_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_NO_NEW_PRIVILEGES = 38


def main() -> None:
    """Put the filter in place, hand over its descriptor, and become the command."""
    address, what, *command = sys.argv[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.connect("\0" + address)
        listener = listen(looks=what == "looks")
        if listener is not None:  # from here on each call that names a file waits until the other side has it
            rights = struct.pack("i", listener)
            channel.sendmsg([what.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            os.close(listener)
    os.execvp(command[0], command)


def listen(looks: bool) -> "int | None":
    """The descriptor that tells of this thread's calls, and of all that it starts; None without such a kernel."""
    if not sys.platform.startswith("linux") or platform.machine() not in MACHINES or sys.maxsize < 1 << 32:
        return None
    architecture, seccomp, calls = MACHINES[platform.machine()]
    calls = {name: number for name, number in calls.items() if looks or name not in LOOKS}
    code = b"".join(struct.pack("=HBBI", *line) for line in _program(architecture, calls))
    buffer = ctypes.create_string_buffer(code)

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    program = Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return None
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):  # the second for kernels before 5.19
        descriptor = libc.syscall(seccomp, _SET_FILTER, flags, ctypes.byref(program))
        if descriptor >= 0:
            return int(descriptor)
    return None


def _program(architecture: int, calls: "dict[str, int]") -> "list[tuple[int, int, int, int]]":
    """The filter in classic BPF: (code, jump if true, jump if false, operand)."""
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    lines = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, _NOTIFY)]
    lines += [(load, 0, 0, 0), (at_least, 0, 1, 0x40000000), (give, 0, 0, _NOTIFY)]  # x32's numbers
    for name, number in calls.items():
        if name in _FLAGS_ARGUMENT:
            flags = 16 + 8 * _FLAGS_ARGUMENT[name]
            lines += [(equal, 0, 4, number), (load, 0, 0, flags), (any_bit, 0, 1, _AT_EMPTY_PATH)]
            lines += [(give, 0, 0, _ALLOW), (give, 0, 0, _NOTIFY)]
        else:
            lines += [(equal, 0, 1, number), (give, 0, 0, _NOTIFY)]
    return [*lines, (give, 0, 0, _ALLOW)]


if __name__ == "__main__":
    main()
