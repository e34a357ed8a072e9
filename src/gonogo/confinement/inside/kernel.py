"""System calls that Python has no function for, via ctypes; failures raise OSError.

Modules of this folder run as ``python -I -S FOLDER``, before anything of the user's is imported, under whichever
Python the launch uses: they import nothing else of gonogo, and little of the standard library, so that they start in
milliseconds.
"""

import ctypes
import os

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x00020000, 0x02000000, 0x04000000
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4

# (x86_64, aarch64), include/uapi/asm/unistd*.h. seccomp.py has those that are refused.
_SYSCALL_NUMBERS = {
    "pivot_root": (155, 41),
    "unshare": (272, 97),
    "capset": (126, 91),
    "seccomp": (317, 277),
    "mount_setattr": (442, 442),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}
MACHINES = ("x86_64", "aarch64")
_libc = ctypes.CDLL(None, use_errno=True)


def syscall_table_index() -> int:
    """Index into the tables of system calls. Raises OSError for a processor or word size without a table."""
    name = os.uname().machine
    if name not in MACHINES or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise OSError(38, f"no table of system calls for {name}")
    return MACHINES.index(name)


def call(name: str, *arguments: object) -> int:
    """Make a system call by name. Raises OSError."""
    return _raise_on_error(
        name,
        _libc.syscall(ctypes.c_long(_SYSCALL_NUMBERS[name][syscall_table_index()]), *map(_to_c_argument, arguments)),
    )


def prctl(option: int, *arguments: int) -> int:
    """``prctl(2)``; every argument is an unsigned long."""
    values = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return _raise_on_error("prctl", _libc.prctl(ctypes.c_int(option), *values))


def mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    """``mount(2)``."""
    text = [None if value is None else os.fsencode(value) for value in (source, target, kind, options)]
    result = _libc.mount(text[0], text[1], text[2], ctypes.c_ulong(flags), text[3])
    _raise_on_error(f"mount {kind or 'at'} {target}", result)


def bind_mount(source: str, target: str, recursive: bool = False) -> None:
    """Bind-mount ``source`` at ``target``."""
    mount(source, target, None, MS_BIND | (MS_REC if recursive else 0))


def unmount(target: str) -> None:
    """Detach a mount (lazy unmount): it disappears at once, and is freed when it is no longer in use."""
    _raise_on_error(f"umount {target}", _libc.umount2(os.fsencode(target), MNT_DETACH))


def make_read_only(target: str, recursive: bool = False) -> None:
    """Make a mount read-only, keeping its other flags (Linux 5.12)."""
    attributes = (ctypes.c_uint64 * 4)(1, 0, 0, 0)  # struct mount_attr: attr_set = MOUNT_ATTR_RDONLY
    at_fdcwd, at_recursive = -100, 0x8000
    call("mount_setattr", at_fdcwd, os.fsencode(target), at_recursive if recursive else 0, attributes, 32)


def _to_c_argument(value: object) -> object:
    if isinstance(value, int):
        return ctypes.c_long(value)
    return ctypes.byref(value) if isinstance(value, (ctypes.Array, ctypes.Structure)) else value


def _raise_on_error(system_call: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{system_call}: {os.strerror(number)}")
    return result


# In its user namespace, root keeps the capabilities that setup steps of a training use, and none over the kernel.
_KEPT_CAPABILITIES = (
    0,  # CAP_CHOWN
    1,  # CAP_DAC_OVERRIDE
    2,  # CAP_DAC_READ_SEARCH
    3,  # CAP_FOWNER
    4,  # CAP_FSETID
    5,  # CAP_KILL
    6,  # CAP_SETGID
    7,  # CAP_SETUID
    10,  # CAP_NET_BIND_SERVICE
)
_CAPABILITY_VERSION_3 = 0x20080522


def drop_capabilities(kept_capabilities: tuple[int, ...] = _KEPT_CAPABILITIES) -> None:
    """Drop all capabilities except ``kept_capabilities``, for this process and its children."""
    mask = 0
    for capability in range(64):
        if capability in kept_capabilities:
            mask |= 1 << capability
            continue
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == 22:  # beyond the last capability of this kernel
                break
            if error.errno != 1:  # an ordinary user outside a namespace has none to drop
                raise
    try:
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError:
        pass  # kernels before 4.3 have no ambient capabilities
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    held = _capabilities()
    low, high = low & held[0], high & held[1]
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    call("capset", header, data)


def _capabilities() -> tuple[int, int]:
    """The permitted capabilities as (low, high) words."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("CapPrm:"):
                value = int(line.split()[1], 16)
                return value & 0xFFFFFFFF, value >> 32
    return 0, 0
