"""Facts about a guarded command from outside its ranks: how the command and its launcher's processes ended.

``gonogo run`` writes ``launch-<host>-<pid>.json`` on each node; each launcher process below it appends to
``launcher-<host>-<pid>.jsonl``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec


class LaunchRecord(msgspec.Struct):
    """The command on one node. Times are seconds since the epoch; None or 0 for events after its own end."""

    host: str
    pid: int
    """Process id of ``gonogo run``."""
    child: int = 0
    """Process id of the command."""
    command: list[str] = []
    cwd: str = ""
    started: float = 0.0
    ended: float = 0.0
    exit_status: int | None = None
    """As in a shell: 128 plus the number of a signal."""
    signals: list[int] = []
    """Signals received by ``gonogo run`` and forwarded."""
    interrupted: bool = False
    """Whether it was asked to end while it ran: Ctrl-C, SIGTERM, SIGHUP."""
    oom_kills: int | None = None
    """Processes killed by the kernel's OOM killer while it ran; None if the kernel doesn't count them."""
    host_total: int = 0
    """The memory of the machine or the container's limit, in bytes."""
    verdict: str | None = None
    """The verdict of the check before the launch; None if it was skipped."""


class ChildExit(msgspec.Struct, frozen=True, tag_field="kind", tag="child"):
    """The exit of a process started by a launcher. ``status`` is minus the signal's number if it was killed."""

    time: float
    pid: int
    status: int
    host: str = ""


def launch_path(folder: str, host: str, pid: int) -> Path:
    """The file that ``gonogo run`` writes on a node."""
    return Path(folder, f"launch-{host}-{pid}.json")


def read_launches(folder: str | Path) -> list[LaunchRecord]:
    """The records of each node's ``gonogo run``, by start time; unreadable files are skipped."""
    found = [_decode_record(_read_bytes(path), LaunchRecord) for path in Path(folder).glob("launch-*.json")]
    return sorted((one for one in found if one is not None), key=lambda launch: launch.started)


def read_children(folder: str | Path) -> list[ChildExit]:
    """The exits noticed by launchers, the earliest first; unreadable lines are skipped."""
    lines = [line for path in Path(folder).glob("launcher-*.jsonl") for line in _read_bytes(path).splitlines()]
    found = [_decode_record(line, ChildExit) for line in lines]
    return sorted((one for one in found if one is not None), key=lambda child: child.time)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


_Record = TypeVar("_Record", LaunchRecord, ChildExit)


def _decode_record(data: bytes, kind: type[_Record]) -> _Record | None:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeError):
        return None
