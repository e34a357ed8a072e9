"""Seccomp filters (classic BPF): system calls that a confined program is denied, and those that are traced.

There are two filters: the first denies calls, the second passes calls that start or end programs or connect sockets
to a listener (``SECCOMP_RET_USER_NOTIF``), which lets each continue.
"""

import ctypes
import struct

from . import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    SyscallNumbers = tuple[int | None, int | None]
    """The number of a system call on (x86_64, aarch64)."""
    Line = tuple[int, int, int, int]
    """A BPF instruction: opcode, jump if true, jump if false, operand."""
    Test = tuple[int, int, str, int | tuple[int, int]]
    """(argument, part, test, value): ``part`` is 0 for the argument's low half, 1 for the high one."""

EPERM, EACCES, ENOTTY, ENOSYS, EAFNOSUPPORT = 1, 13, 25, 38, 97
_ALLOW, _NOTIFY, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_SET_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_ARCHITECTURES = (0xC000003E, 0xC00000B7)
_X32_SYSCALL_BIT = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_NAMESPACE_CLONE_FLAGS = 0x7E020080  # CLONE_NEW*

# name: (x86_64, aarch64); None if the architecture has no such call.
_ADMIN_SYSCALLS = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "open_tree": (428, 428),
    "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "setns": (308, 268), "swapon": (167, 224),
    "swapoff": (168, 225), "reboot": (169, 142), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "acct": (163, 89),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "userfaultfd": (323, 282), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "syslog": (103, 116), "open_by_handle_at": (304, 265), "vhangup": (153, 58), "iopl": (172, None),
    "ioperm": (173, None), "chroot": (161, 51), "lsm_set_self_attr": (460, 460),
}  # fmt: skip
_UNSUPPORTED_SYSCALLS = {  # ENOSYS, as in an old kernel, so that libraries fall back to other calls
    "clone3": (435, 435), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip
_UNSHARE, _CLONE, _IOCTL, _SOCKET, _SOCKETPAIR = (272, 97), (56, 220), (16, 29), (41, 198), (53, 199)
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_ALLOWED_SOCKET_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK

# Needed without namespaces, since Landlock doesn't cover them. Setting modes, owners, times and attributes does
# nothing and reports success, since nearly every program sets some, and few read them back.
_METADATA_SYSCALLS = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469),
}  # fmt: skip
_IPC_SYSCALLS = {
    "shmget": (29, 194), "shmctl": (31, 195), "shmat": (30, 196), "msgget": (68, 186), "msgctl": (71, 187),
    "msgsnd": (69, 189), "semget": (64, 190), "semctl": (66, 191), "semop": (65, 193), "mq_open": (240, 180),
    "mq_unlink": (241, 181), "process_madvise": (440, 440), "process_mrelease": (448, 448), "setdomainname": (171, 162),
    "sethostname": (170, 161), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
}  # fmt: skip
_PROCESS_SYSCALLS = {  # (call, its argument with the process id): allowed only for 0, the caller itself
    "sched_setaffinity": ((203, 122), 0), "sched_setscheduler": ((144, 119), 0), "sched_setparam": ((142, 118), 0),
    "sched_setattr": ((314, 274), 0), "setpriority": ((141, 140), 1), "ioprio_set": ((251, 30), 1),
    "migrate_pages": ((256, 238), 0), "move_pages": ((279, 239), 0),
}  # fmt: skip
_USER_SYSCALLS = (((141, 140), 0, 2), ((251, 30), 0, 3))  # setpriority, ioprio_set: for all processes of a user
_SIGNAL_SYSCALLS = {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "pidfd_send_signal": (424, 424)}
_CONNECT, _SENDTO, _PRLIMIT, _TRUNCATE = (42, 203), (44, 206), (302, 261), (76, 45)
# Some ioctls of file systems change a file, or snapshot a folder, with read access only. Therefore only a few
# ioctls of files are allowed; those of terminals and descriptors in general ("T"), and of sockets, all are.
_ALLOWED_IOCTL_TYPES = (0x5400, 0x8900)
_ALLOWED_FILE_IOCTLS = (
    2, 0x40049409, 0x4020940D, 0xC0189436, 0xC020660B, 0x80086601, 0x801C581F,
)  # FIGETBSZ, FICLONE, FICLONERANGE, FIDEDUPERANGE, FS_IOC_FIEMAP, FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR  # fmt: skip
_OPEN, _OPENAT, _OPENAT2, _CUT_OFF = (2, None), (257, 56), (437, 437), (0x203, 0x200)  # O_TRUNC with O_RDONLY


class BpfProgram:
    """A BPF filter under construction, in the order in which the kernel evaluates it."""

    def __init__(self, other_architecture: int) -> None:
        self._index = kernel.syscall_table_index()
        self.lines: list[Line] = [
            (_LOAD, 0, 0, 4),
            (_EQUAL, 1, 0, _ARCHITECTURES[self._index]),
            (_RETURN, 0, 0, other_architecture),
        ]
        self.lines += [(_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, _X32_SYSCALL_BIT), (_RETURN, 0, 0, other_architecture)]

    def add_rule(self, numbers: "SyscallNumbers", answer: int, *tests: "Test") -> None:
        """Return ``add_rule`` for a system call if all tests hold."""
        number = numbers[self._index]
        if number is None:
            return
        body = []
        for argument, part, what, value in tests:
            body.append([(_LOAD, 0, 0, 16 + 8 * argument + 4 * part), *_test_instructions(what, value)])
        size = sum(map(len, body)) + 1 + (1 if tests else 0)
        lines = [(_EQUAL, 0, size, number)]
        left = size
        for test in body:
            for code, true, false, operand in test:
                left -= 1
                # None as a jump target means behind the return, where the number of the call is loaded again.
                lines.append((code, left - 1 if true is None else true, left - 1 if false is None else false, operand))
        lines.append((_RETURN, 0, 0, answer))
        if tests:
            lines.append((_LOAD, 0, 0, 0))
        self.lines += lines

    def install(self, with_listener: bool = False) -> int | None:
        """Install the filter for this process and its children; returns the listener's descriptor if there is one."""
        code = b"".join(struct.pack("=HBBI", *line) for line in [*self.lines, (_RETURN, 0, 0, _ALLOW)])
        buffer = ctypes.create_string_buffer(code)
        program = _SockFprog(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if not with_listener:
            kernel.call("seccomp", _SET_FILTER, 0, program)
            return None
        try:
            return kernel.call("seccomp", _SET_FILTER, _NEW_LISTENER | _WAIT_KILLABLE, program)
        except OSError:  # kernels before 5.19
            return kernel.call("seccomp", _SET_FILTER, _NEW_LISTENER, program)


class _SockFprog(ctypes.Structure):
    """C's ``struct sock_fprog``, by which a filter is passed to the kernel."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _test_instructions(
    comparison_kind: str, value: "int | tuple[int, int]"
) -> "list[tuple[int, int | None, int | None, int]]":
    """BPF instructions that test the loaded value; a None jump is taken if the test fails."""
    if isinstance(value, tuple):
        mask, operand = value
        jumps: tuple[int | None, int | None] = (0, None) if comparison_kind == "masked" else (None, 0)
        return [(_AND, 0, 0, mask), (_EQUAL, *jumps, operand)]
    if comparison_kind == "equal":
        return [(_EQUAL, 0, None, value)]
    if comparison_kind == "other":
        return [(_EQUAL, None, 0, value)]
    if comparison_kind == "any bit":
        return [(_ANY_BIT, 0, None, value)]
    if comparison_kind == "no bit":
        return [(_ANY_BIT, None, 0, value)]
    raise ValueError(comparison_kind)


def deny_escapes(namespaces: bool, landlock: int = 0) -> None:
    """Deny the system calls that could get around the confinement.

    ``namespaces``: whether the program has its own namespaces of every kind; otherwise ``landlock`` is its version.
    """
    program = BpfProgram(_ERRNO | ENOSYS)
    for numbers in _ADMIN_SYSCALLS.values():
        program.add_rule(numbers, _ERRNO | EPERM)
    for numbers in _UNSUPPORTED_SYSCALLS.values():
        program.add_rule(numbers, _ERRNO | ENOSYS)
    program.add_rule(_UNSHARE, _ERRNO | EPERM, (0, 0, "any bit", _NAMESPACE_CLONE_FLAGS))
    program.add_rule(_CLONE, _ERRNO | EPERM, (0, 0, "any bit", _NAMESPACE_CLONE_FLAGS))
    for number in _TERMINAL_INPUT:
        program.add_rule(_IOCTL, _ERRNO | EPERM, (1, 0, "equal", number))
    if namespaces:
        families = [(0, 0, "other", family) for family in _ALLOWED_SOCKET_FAMILIES]
        program.add_rule(_SOCKET, _ERRNO | EAFNOSUPPORT, *families)
    else:
        _add_landlock_rules(program, landlock)
    program.install()


def _add_landlock_rules(program: BpfProgram, landlock: int) -> None:
    """Deny the calls that namespaces would isolate and Landlock doesn't cover."""
    for numbers in _METADATA_SYSCALLS.values():
        program.add_rule(numbers, _ERRNO | 0)
    kinds: list[Test] = [(1, 0, "not masked", (0xFF00, kind)) for kind in _ALLOWED_IOCTL_TYPES]
    program.add_rule(_IOCTL, _ERRNO | ENOTTY, *kinds, *((1, 0, "other", number) for number in _ALLOWED_FILE_IOCTLS))
    for numbers in _IPC_SYSCALLS.values():
        program.add_rule(numbers, _ERRNO | EPERM)
    for numbers, argument in _PROCESS_SYSCALLS.values():
        program.add_rule(numbers, _ERRNO | EPERM, (argument, 0, "other", 0))
    program.add_rule(_PRLIMIT, _ERRNO | EPERM, (0, 0, "other", 0), (2, 0, "other", 0))
    for numbers, argument, kind in _USER_SYSCALLS:
        program.add_rule(numbers, _ERRNO | EPERM, (argument, 0, "equal", kind))
    if landlock < 3:  # older versions don't cover truncation; ftruncate counts as writing
        program.add_rule(_TRUNCATE, _ERRNO | EACCES)
        program.add_rule(_OPEN, _ERRNO | EACCES, (1, 0, "masked", _CUT_OFF))
        program.add_rule(_OPENAT, _ERRNO | EACCES, (2, 0, "masked", _CUT_OFF))
        program.add_rule(_OPENAT2, _ERRNO | ENOSYS)
    for numbers in (_SOCKET, _SOCKETPAIR):
        program.add_rule(numbers, _ERRNO | EACCES, (0, 0, "other", 1))
        # Each datagram can have its own address, which no filter can read: only streams and seqpackets are allowed.
        program.add_rule(numbers, _ERRNO | EACCES, (1, 0, "not masked", (0xF, 1)), (1, 0, "not masked", (0xF, 5)))
    program.add_rule(_CONNECT, _ERRNO | EACCES)
    program.add_rule(_SENDTO, _ERRNO | EACCES, (4, 0, "other", 0))
    program.add_rule(_SENDTO, _ERRNO | EACCES, (4, 1, "other", 0))
    if landlock < 6:
        for numbers in _SIGNAL_SYSCALLS.values():
            program.add_rule(numbers, _ERRNO | EPERM)


def trace_calls(calls: "Mapping[str, SyscallNumbers]") -> int:
    """Trace calls (as in :data:`~calls.COMMANDS`); returns the descriptor on which they are received."""
    program = BpfProgram(_NOTIFY)
    program.add_rule((425, 425), _NOTIFY)  # io_uring bypasses filters, so a program that uses it is not seen completely
    for numbers in calls.values():
        program.add_rule(numbers, _NOTIFY)
    descriptor = program.install(with_listener=True)
    assert descriptor is not None
    return descriptor
