"""Failures due to the confinement, or to the permissions of this user: a limit of the rehearsal, never certain.

What a program may write and which sockets and devices it can reach depends on this machine and this user. On the
target machine, the user may own the folder to which access is denied here.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from gonogo.evidence.rehearsal.chain import ChainedException, exception_chain
from gonogo.evidence.rehearsal.record import ConfinementKind, Failure, RankRecord
from gonogo.finding import translated
from gonogo.finding.remedy import Purpose, Reason, rehearse_again, run_command

_MAX_MESSAGE_LENGTH = 160

_PERMISSION_DENIED_PATTERN = re.compile(
    r"\[[Ee]rrno (?:1|13|30)\]|\(os error (?:1|13|30)\)|\berrno = (?:1|13|30)\b|\bcode: (?:1|13|30), kind:"
    r"|[Pp]ermission denied|Operation not permitted|Read-only file system"
    r"|attempt to write a readonly database|unable to open database file|\bEACCES\b|\bEROFS\b"
)
"""EPERM, EACCES and EROFS as worded by Python, Rust, HDF5, SQLite and C++. CUDA's own errors are in lower case."""
_CROSS_DEVICE_PATTERN = re.compile(r"\[[Ee]rrno 18\]|\(os error 18\)|[Ii]nvalid cross-device link")
_UNMAPPED_ID_PATTERN = re.compile(r"\[[Ee]rrno 75\]|\(os error 75\)|Value too large for defined data type")
"""EOVERFLOW: overlayfs doesn't copy folders whose owner or group is unknown in the user namespace."""
_CONNECTION_REFUSED_PATTERN = re.compile(r"\[Errno 111\]|\(os error 111\)|Connection refused")
_MISSING_FILE_PATTERN = re.compile(r"\[Errno 2\]|\(os error 2\)|No such file or directory")
_QUOTED_PATH_PATTERN = re.compile(r"['\"](/[^'\"\n]{1,1000}|[^'\"\n]{1,1000}/[^'\"\n]{0,1000})['\"]")
_HIDDEN_FOLDERS = ("/dev/", "/run/", "/var/run/")
_CONNECT_CALL_PATTERN = re.compile(r"\bconnect(?:_ex)?\(")

_DENIED_BY_LANDLOCK = Reason(
    translated(
        "{what} was denied: this machine sandboxes programs with Landlock, which allows writing only to the "
        "temporary folder and allows no sockets: enable user namespaces (see gonogo env), or make the "
        "program write below TMPDIR"
    ),
    run_command("gonogo env", Purpose.ENABLE_NAMESPACES),
)
_POSSIBLY_DENIED_BY_LANDLOCK = Reason(
    translated(
        "programs were sandboxed with Landlock here, which may have denied something earlier that is allowed "
        "on the target machine: enable user namespaces (gonogo env says how), or have the launch write below "
        "TMPDIR"
    ),
    run_command("gonogo env", Purpose.ENABLE_NAMESPACES),
)
_DENIED_TO_CURRENT_USER = Reason(
    translated(
        "{what} was denied to the current user on this machine, but may be permitted on the target machine: "
        "use a path that is writable here, or rehearse as a user with permission"
    ),
    rehearse_again(purpose=Purpose.AFTER_CHANGE),
)
_CROSS_DEVICE_RENAME = Reason(
    translated(
        "{what} moves or links a file between folders that are on one file system on the machine, but on "
        "several inside the sandbox: put both in one folder to rehearse"
    ),
    rehearse_again(purpose=Purpose.AFTER_CHANGE),
)
_OTHER_OWNER_FOLDER = Reason(
    translated(
        "{what} is in a folder of another user or group, which is not writable inside a user namespace, but "
        "may be in the real run: use a path in a folder that belongs to you and your primary group"
    ),
    rehearse_again(purpose=Purpose.AFTER_CHANGE),
)
_HIDDEN_SOCKET_OR_DEVICE = Reason(
    translated(
        "{what} is a socket or device of this machine, which sandboxed programs can't access; it may exist "
        "on the target machine: remove it to rehearse the rest"
    ),
    rehearse_again(purpose=Purpose.AFTER_CHANGE),
)
_NO_SERVICE = Reason(
    translated(
        "{what}: sandboxed programs can't reach services on this machine, though the target machine may run "
        "this one: let the command start it, or drop the dependency on it"
    ),
    rehearse_again(purpose=Purpose.AFTER_CHANGE),
)


def explain_denied_access(rank: RankRecord, folder: Path) -> Reason | None:
    """Why a rank's failure may be due to the confinement or to denied access; None if it isn't.

    Under Landlock this is possible for any failure, because the denial may have come earlier: a script whose ``rm -rf
    output`` was denied goes on to a program that finds the folder, and a program may swallow the error.
    """
    landlock = _POSSIBLY_DENIED_BY_LANDLOCK if rank.confinement == "landlock" else None
    if rank.failure is None:
        return landlock
    return explain_refusal(rank.failure, rank.confinement, folder) or landlock


def explain_refusal(failure: Failure, confinement: ConfinementKind, folder: Path) -> Reason | None:
    """Why a failure says nothing about the run: an exception in its chain is a denial here; None otherwise.

    ``folder`` is the program's working directory.
    """
    for raised in exception_chain(failure):
        why = _explain_exception(raised, confinement, folder)
        if why is not None:
            return why
    return None


def _explain_exception(exception: ChainedException, confinement: ConfinementKind, folder: Path) -> Reason | None:
    message = exception.message
    match = _QUOTED_PATH_PATTERN.search(message)
    path = match[1] if match is not None else ""
    what = path or _first_line(message)
    kind = exception.type.rpartition(".")[2]
    if kind == "PermissionError" or _PERMISSION_DENIED_PATTERN.search(message):
        if confinement == "landlock":
            return _DENIED_BY_LANDLOCK.format(what=what)
        return None if path and _is_owned_by_user(folder / path) else _DENIED_TO_CURRENT_USER.format(what=what)
    if confinement not in ("namespaces", "landlock"):
        return None
    if _CROSS_DEVICE_PATTERN.search(message):
        return _CROSS_DEVICE_RENAME.format(what=what)
    if _UNMAPPED_ID_PATTERN.search(message) and kind != "OverflowError":
        return _OTHER_OWNER_FOLDER.format(what=what)
    if kind == "ConnectionRefusedError" or (kind == "OSError" and _CONNECTION_REFUSED_PATTERN.search(message)):
        return _NO_SERVICE.format(what=what)
    if kind == "FileNotFoundError" or _MISSING_FILE_PATTERN.search(message):
        if path.startswith(_HIDDEN_FOLDERS):
            return _HIDDEN_SOCKET_OR_DEVICE.format(what=path)
        if not path and _is_socket_error(exception):
            return _HIDDEN_SOCKET_OR_DEVICE.format(what=_first_line(message))
    return None


def _is_owned_by_user(path: Path) -> bool:
    """Whether the path, or its nearest existing parent, belongs to the current user, who isn't root.

    An owner is denied access only by file modes, which the project or the program has set. Root is excluded because
    in a user namespace it lacks the rights that it has outside.
    """
    user = os.geteuid()
    path = Path(os.path.normpath(path))
    for place in (path, *path.parents):
        with contextlib.suppress(OSError):
            return bool(user) and os.lstat(place).st_uid == user
    return False


def _is_socket_error(exception: ChainedException) -> bool:
    """Whether connecting to a Unix socket raised the exception, whose message doesn't contain the path."""
    return any(_CONNECT_CALL_PATTERN.search(frame.text) for frame in exception.frames[-2:])


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0][:_MAX_MESSAGE_LENGTH]
