"""What the workers of several ranks and the exchange between them say to each other: MessagePack of these."""

from __future__ import annotations

import os
import socket
from enum import IntEnum
from multiprocessing.connection import Connection
from typing import Literal

import msgspec

from gonogo.finding.frame import Frame

End = Literal["completed", "enough", "raised", "unsupported", "killed", "stopped"]
"""How a rank ended; ``enough``: gonogo stopped it after the steps asked for, ``stopped``: the exchange did."""


class WaitMode(IntEnum):
    """Whether a rank waits for the others in a call."""

    NO = 0
    """It goes on (an asynchronous collective of unknown values)."""
    YES = 1
    """As the real program would."""
    IF_NEED_BE = 2
    """It waits for values, though the real program goes on: let go where nobody else can."""


class Group(msgspec.Struct, frozen=True, tag="group", array_like=True):
    """A process group, before its first call."""

    key: str
    members: tuple[int, ...]
    only_asks: bool = False
    """No collective of the program: what gonogo's workers ask each other, of those who come."""


class Site(msgspec.Struct, frozen=True, tag="site", array_like=True):
    """A stack from which a collective is called, before its first call."""

    number: int
    frames: tuple[Frame, ...]
    functions: tuple[str, ...]
    place: int
    """The same on all ranks for the same lines of code."""


class Collective(msgspec.Struct, frozen=True, tag="call", array_like=True):
    """One collective."""

    group: str
    operator: str
    sizes: tuple[int, ...]
    dtype: str | None
    reduction: str | None
    root: int | None
    parameters: tuple[int, ...]
    module: str | None
    phase: str
    step: int
    site: int
    waits: WaitMode
    payload: bytes | None = None
    """What the rank sends, where it is known."""
    payload_of_root: bool = False
    """Whether the answer needs what the root sends, and of the others nothing."""
    uneven: bool = False
    """Whether the ranks may differ in :attr:`sizes`."""

    @property
    def signature(self) -> tuple[object, ...]:
        """What has to be the same on all ranks."""
        sizes = () if self.uneven else self.sizes
        return self.operator, self.root, self.parameters, self.dtype, self.reduction, sizes


class RankContext(msgspec.Struct, frozen=True, tag="context", array_like=True):
    """What the rank has read and done, at a call in which it waits and that was not answered at once."""

    batch: tuple[tuple[str, str], ...]
    batches: int
    steps: int


class Hello(msgspec.Struct, frozen=True, tag="hello", array_like=True):
    """The first message of a rank."""

    rank: int


class ThreadCall(msgspec.Struct, frozen=True, tag="thread", array_like=True):
    """A group's first collective in a thread of the program's own, told when the program has ended."""

    call: Collective


class RankEnded(msgspec.Struct, frozen=True, tag="ended", array_like=True):
    """The last message of a rank."""

    how: End
    steps: int = 0
    has_threads: bool = False
    """Whether threads of the program's own still run, which may yet call collectives."""


Message = Hello | Group | Site | Collective | ThreadCall | RankContext | RankEnded


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """What a rank that waits is told; ``stop`` comes unasked as well."""

    kind: Literal["go", "values", "unknown", "stop", "enough"]
    payloads: tuple[bytes, ...] = ()
    of: tuple[int, ...] = ()
    """For each member of the group, which of :attr:`payloads` is its own (or stands for it)."""
    stopped_by: tuple[int, str] | None = None
    """With ``stop``: the rank whose failure it is, and how it ended."""


def disable_nagle(connection: Connection) -> None:
    """Small messages over TCP are not to wait for more to come."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
