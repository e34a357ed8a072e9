"""What is known of a guarded command from outside its ranks: how it ended, and how its launcher's processes ended.

``gonogo run`` writes ``launch-<host>-<pid>.json`` on each node; every launcher process beneath it appends
``launcher-<host>-<pid>.jsonl``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec


class LaunchRecord(msgspec.Struct):
    """The command on one node. Times are seconds since the epoch; what was not lived to see is None or 0."""

    host: str
    pid: int
    """Of ``gonogo run`` itself."""
    child: int = 0
    """Of the command that it started."""
    command: list[str] = []
    cwd: str = ""
    started: float = 0.0
    ended: float = 0.0
    exit_status: int | None = None
    """As a shell has it: 128 and more for a signal."""
    signals: list[int] = []
    """Signals that were sent to ``gonogo run`` and passed on."""
    interrupted: bool = False
    """Whether it was asked to end while it ran: Ctrl-C, SIGTERM, SIGHUP."""
    oom_kills: int | None = None
    """Processes that the kernel killed for want of memory while it ran; None where the kernel does not tell."""
    host_total: int = 0
    """Bytes of memory that the machine has, or the container may use."""
    verdict: str | None = None
    """What the check before it came to; None where it was left out."""


class ChildExit(msgspec.Struct, frozen=True, tag_field="kind", tag="child"):
    """A process that a launcher had started has ended. ``status`` is minus the signal's number for a signal."""

    time: float
    pid: int
    status: int
    host: str = ""


def launch_path(folder: str, host: str, pid: int) -> Path:
    """Where a node's ``gonogo run`` writes."""
    return Path(folder, f"launch-{host}-{pid}.json")


def read_launches(folder: str | Path) -> list[LaunchRecord]:
    """What each node's ``gonogo run`` wrote, by its start; files that can't be read are left out."""
    found = [_decode(_read_bytes(path), LaunchRecord) for path in Path(folder).glob("launch-*.json")]
    return sorted((one for one in found if one is not None), key=lambda launch: launch.started)


def read_children(folder: str | Path) -> list[ChildExit]:
    """The processes that launchers saw end, the earliest first; lines that can't be read are left out."""
    lines = [line for path in Path(folder).glob("launcher-*.jsonl") for line in _read_bytes(path).splitlines()]
    found = [_decode(line, ChildExit) for line in lines]
    return sorted((one for one in found if one is not None), key=lambda child: child.time)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


_Kind = TypeVar("_Kind", LaunchRecord, ChildExit)


def _decode(data: bytes, kind: type[_Kind]) -> _Kind | None:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeError):
        return None
