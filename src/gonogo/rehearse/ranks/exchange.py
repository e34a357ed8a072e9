"""The server through which ranks meet: a thread that receives their collectives and compares them."""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, Listener
from types import TracebackType

import msgspec

from gonogo.finding.divergence import Divergence
from gonogo.finding.waits import WaitingSide
from gonogo.rehearse.progress import RankStatus
from gonogo.rehearse.ranks.call_log import CallLog
from gonogo.rehearse.ranks.comparison import Comparison
from gonogo.virtual.protocol.messages import Hello, Message, Reply, disable_nagle
from gonogo.virtual.protocol.plan import ExchangeAddress

_BACKLOG = 1024


class Exchange:
    """Server to which the rehearsed ranks report their collectives; ``host`` is its address for remote workers.

    Without a host each rank inherits one end of a socket pair, because a confined program can't connect to anything.
    ``log`` keeps all calls of the ranks, if requested.
    """

    def __init__(self, ranks: Sequence[int], host: str | None = None, log: CallLog | None = None) -> None:
        if log is not None:
            log.clear()
        key = secrets.token_bytes(32)
        self._listener: Listener | None = None
        self._ends: dict[int, Connection] = {}
        named = ""
        if host is not None:
            self._listener = Listener((host, 0), backlog=_BACKLOG, authkey=key)
            named = f"{host}:{self._listener.address[1]}"
        self.address = ExchangeAddress(named, key.hex(), tuple(ranks))
        self._comparison = Comparison(ranks, self._send_reply, log)
        self._lock = threading.Lock()
        self._of_rank: dict[int, Connection] = {}
        self._ranks_of: dict[Connection, int] = {}
        self._decode = msgspec.msgpack.Decoder(list[Message]).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._closed = False
        self._failure: Exception | None = None
        for rank in ranks if host is None else ():
            ours, theirs = socket.socketpair()
            self._ends[rank] = Connection(theirs.detach())
            self._selector.register(Connection(ours.detach()), selectors.EVENT_READ)
        runs = [self._serve_messages] if self._listener is None else [self._serve_messages, self._accept_connections]
        self._threads = [
            threading.Thread(target=run, daemon=True, name=f"gonogo-exchange-{run.__name__}") for run in runs
        ]

    def __enter__(self) -> Exchange:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        self._wake.send(b"\0")
        self._threads[0].join(5)
        if self._listener is not None:
            self._listener.close()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, Connection):
                key.fileobj.close()
        for connection in self._ends.values():
            connection.close()
        for end in (self._wake, self._woken):
            end.close()
        self._selector.close()
        if self._failure is not None and error is None:
            raise self._failure

    def descriptor(self, rank: int) -> int | None:
        """The file descriptor that a local rank inherits; None if the rank has to connect."""
        end = self._ends.get(rank)
        return None if end is None else end.fileno()

    @property
    def divergence(self) -> Divergence | None:
        """Where the ranks diverged, as far as known by now."""
        with self._lock:
            return self._comparison.divergence

    @property
    def waits(self) -> dict[int, WaitingSide]:
        """The collectives in which ranks waited for one that was stuck."""
        with self._lock:
            return self._comparison.waits

    def note_workers(self, statuses: Sequence[RankStatus]) -> None:
        """Take note of the workers that have ended, whether or not they reported it, and of those that are stuck."""
        with self._lock:
            for status in statuses:
                if status.state not in ("waiting", "running"):
                    self._comparison.record_end(status.rank)
                elif status.progress is not None:
                    self._comparison.record_stuck(status.rank, status.progress.stuck)

    # -- the threads --------------------------------------------------------------------------------------------------

    def _accept_connections(self) -> None:
        assert self._listener is not None
        while not self._closed:
            try:
                connection = self._listener.accept()
            except (OSError, EOFError, ValueError):  # closed, or a client without the key
                if self._closed:
                    return
                continue
            except Exception:  # AuthenticationError derives directly from Exception
                continue
            disable_nagle(connection)
            self._selector.register(connection, selectors.EVENT_READ)
            with contextlib.suppress(OSError):
                self._wake.send(b"\0")

    def _serve_messages(self) -> None:
        try:
            while not self._closed:
                for key, _ in self._selector.select():
                    if key.fileobj is self._woken:
                        self._woken.recv(64)
                        continue
                    assert isinstance(key.fileobj, Connection)
                    self._receive_message(key.fileobj)
        except Exception as error:  # raised when the exchange is closed; until then ranks must not wait forever
            self._failure = error
            for connection in list(self._ranks_of):
                connection.close()

    def _receive_message(self, connection: Connection) -> None:
        try:
            messages = self._decode(connection.recv_bytes())
        except (OSError, EOFError, msgspec.MsgspecError, UnicodeError):
            self._selector.unregister(connection)
            rank = self._ranks_of.pop(connection, None)
            connection.close()
            if rank is not None and self._of_rank.get(rank) is connection:
                with self._lock:
                    self._comparison.record_end(rank)
            return
        with self._lock:
            for message in messages:
                if isinstance(message, Hello):
                    self._ranks_of[connection] = message.rank
                    self._of_rank[message.rank] = connection
                self._comparison.handle_message(self._ranks_of[connection], message)

    def _send_reply(self, rank: int, reply: Reply) -> None:
        connection = self._of_rank.get(rank)
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.send_bytes(self._encode(reply))
