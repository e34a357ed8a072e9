"""Messages between the workers of several ranks and the exchange that connects them, encoded as MessagePack."""

from __future__ import annotations

import os
import socket
from enum import IntEnum
from multiprocessing.connection import Connection
from typing import Literal

import msgspec

from gonogo.finding.frame import Frame

End = Literal["completed", "enough", "raised", "unsupported", "killed", "stopped"]
"""How a rank ended; ``enough``: gonogo stopped it after the requested steps, ``stopped``: the exchange did."""


class WaitMode(IntEnum):
    """Whether a rank waits for the others in a collective."""

    NO = 0
    """It continues (an asynchronous collective of unknown values)."""
    YES = 1
    """It waits as the real program would."""
    IF_NEED_BE = 2
    """It waits for values, although the real program would continue; released if all others are blocked."""


class Group(msgspec.Struct, frozen=True, tag="group", array_like=True):
    """A process group, sent before its first collective."""

    key: str
    members: tuple[int, ...]
    only_asks: bool = False
    """True for gonogo's internal questions between workers, which are no collectives of the program and may lack
    members."""


class CallSite(msgspec.Struct, frozen=True, tag="site", array_like=True):
    """A call stack of a collective, sent before its first call."""

    number: int
    frames: tuple[Frame, ...]
    functions: tuple[str, ...]
    place: int
    """Equal on all ranks for the same lines of code."""


class Collective(msgspec.Struct, frozen=True, tag="call", array_like=True):
    """One collective call of a rank."""

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
    """The rank's input, if its values are known."""
    payload_of_root: bool = False
    """True if only the root's payload is needed for the answer."""
    uneven: bool = False
    """True if :attr:`sizes` may differ between ranks."""

    @property
    def signature(self) -> tuple[object, ...]:
        """The properties that must be equal on all ranks."""
        sizes = () if self.uneven else self.sizes
        return self.operator, self.root, self.parameters, self.dtype, self.reduction, sizes


class RankContext(msgspec.Struct, frozen=True, tag="context", array_like=True):
    """What the rank has read and done so far, sent with a blocking call that is not answered at once."""

    batch: tuple[tuple[str, str], ...]
    batches: int
    steps: int


class Hello(msgspec.Struct, frozen=True, tag="hello", array_like=True):
    """The first message of a rank."""

    rank: int


class ThreadCall(msgspec.Struct, frozen=True, tag="thread", array_like=True):
    """The first collective of a group in one of the program's own threads, sent when the program has ended."""

    call: Collective


class RankEnded(msgspec.Struct, frozen=True, tag="ended", array_like=True):
    """The last message of a rank."""

    how: End
    steps: int = 0
    has_threads: bool = False
    """True if threads of the program are still running, which may yet call collectives."""


Message = Hello | Group | CallSite | Collective | ThreadCall | RankContext | RankEnded


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a waiting rank; ``stop`` is also sent unsolicited."""

    kind: Literal["go", "values", "unknown", "stop", "enough"]
    payloads: tuple[bytes, ...] = ()
    of: tuple[int, ...] = ()
    """For each member of the group, the index in :attr:`payloads` of its payload (or of an equivalent one)."""
    stopped_by: tuple[int, str] | None = None
    """With ``stop``: the rank that failed, and how it ended."""


def disable_nagle(connection: Connection) -> None:
    """Disable Nagle's algorithm, so that small messages over TCP are sent at once."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
