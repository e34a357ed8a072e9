"""The other ranks that are rehearsed with this one: each collective is sent to them, and awaited as in a real run.

The exchange (``gonogo.rehearse.ranks.exchange``) compares the calls of the ranks. If they diverge it reports that,
and :class:`RanksDiverged` ends the program at that point.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Client, Connection
from weakref import WeakKeyDictionary, WeakSet

import msgspec

from gonogo.virtual.collectives.call_sites import CallSites, describe_site
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.protocol.messages import (
    CallSite,
    Collective,
    End,
    Group,
    Hello,
    Message,
    RankContext,
    RankEnded,
    Reply,
    ThreadCall,
    WaitMode,
    disable_nagle,
)
from gonogo.virtual.protocol.plan import EXCHANGE_DESCRIPTOR, ExchangeAddress

_MAX_BATCHED_CALLS = 64
"""Calls that need no answer are sent in batches of this many ..."""
_BATCH_SECONDS = 0.02
"""... or after this many seconds."""
_MAX_MESSAGES_AHEAD = 1024
"""At most this many of them are made without waiting for the other ranks."""

_MAX_THREADS = 256
_MAX_SECONDS_TO_JOIN = 5.0
"""How long a thread that calls a collective waits for the main thread to join it or to call another."""
_THREAD_SITE_OFFSET = 1 << 40
"""The first number for stacks of threads."""

Situation = Callable[[], tuple[str | None, str, int]]
"""Returns the current module, phase and step."""


class RanksDiverged(BaseException):
    """Raised in the program if it would wait forever, or if another rank has ended."""

    def __init__(self, reply: Reply) -> None:
        super().__init__("the ranks have diverged")
        self.reply = reply


class PeerStepLimitReached(BaseException):
    """Raised in the program if it waits for a rank that was stopped after the requested steps."""


class Peers:
    """One rank's connection to the exchange. ``situation`` is set before the program runs."""

    def __init__(self, rank: int, address: ExchangeAddress, line: Connection) -> None:
        self.rank = rank
        self.ranks = frozenset(address.ranks)
        self.situation: Situation = lambda: (None, "load", 0)
        self.over = False
        """Whether the ranks have diverged: what the program still calls while it ends concerns nobody."""
        self._connection = line
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Reply).decode
        self._waiting_to_go: list[Message] = [Hello(rank)]
        self._sent_at = time.monotonic()
        self._ahead = 0
        self._groups: set[str] = set()
        self._sites = CallSites(self._enqueue)
        self._thread = threading.get_ident()
        self._of_threads: dict[tuple[str, int], tuple[threading.Thread, tuple[Group, CallSite, ThreadCall]]] = {}
        """By group and thread of the program's own, the first collective in it."""
        self._joined: WeakSet[threading.Thread] = WeakSet()
        self._joining: threading.Thread | None = None
        """The thread for which the main thread waits."""
        self._awaited: WeakKeyDictionary[threading.Thread, bool] = WeakKeyDictionary()
        """By thread of the program's own, whether its collectives are compared like those of the main thread."""
        self._calls_of_main = 0
        self._flush()

    def _enqueue(self, message: Message) -> None:
        self._waiting_to_go.append(message)

    def has_rehearsed_peer(self, members: tuple[int, ...]) -> bool:
        """Whether another rank of the group is rehearsed too, so that the exchange has to be asked."""
        if self.over or not any(member in self.ranks for member in members if member != self.rank):
            return False
        return threading.get_ident() == self._thread or self._is_awaited_by_main()

    def _is_awaited_by_main(self) -> bool:
        """Whether the main thread joins this one before it calls another collective, so that their order is certain.

        Waits until that is known. A thread whose calls come at any time beside the main thread's can't be compared.
        """
        own = threading.current_thread()
        known = self._awaited.get(own)
        before, until = self._calls_of_main, time.monotonic() + _MAX_SECONDS_TO_JOIN
        while known is None:
            if self._joining is own:
                known = True
            elif self.over or self._calls_of_main != before or time.monotonic() > until:
                known = False
            else:
                time.sleep(0.002)
        self._awaited[own] = known
        return known and self._joining is own

    def report_collective(
        self,
        group: str,
        members: tuple[int, ...],
        operator: str,
        *,
        sizes: tuple[int, ...] = (),
        dtype: str | None = None,
        reduction: str | None = None,
        root: int | None = None,
        wait_mode: WaitMode = WaitMode.YES,
        payload: bytes | None = None,
        is_root_payload: bool = False,
        has_uneven_sizes: bool = False,
    ) -> list[bytes] | None:
        """Report a collective; returns what each member sent if the rank waited for it and it is known, else None."""
        if group not in self._groups:
            self._groups.add(group)
            self._waiting_to_go.append(Group(group, members))
        self._calls_of_main += threading.get_ident() == self._thread
        site, parameters = self._sites.current_site()
        module, phase, step = self.situation()
        if wait_mode is WaitMode.NO:
            self._ahead += 1
            if self._ahead >= _MAX_MESSAGES_AHEAD:
                wait_mode = WaitMode.IF_NEED_BE
        self._waiting_to_go.append(
            Collective(
                group,
                operator,
                sizes,
                dtype,
                reduction,
                root,
                parameters,
                module,
                phase,
                step,
                site,
                wait_mode,
                payload,
                is_root_payload,
                has_uneven_sizes,
            )
        )
        if wait_mode is WaitMode.NO:
            # The receiver may already be waiting for it.
            if (
                operator.startswith("send")
                or len(self._waiting_to_go) >= _MAX_BATCHED_CALLS
                or time.monotonic() - self._sent_at > _BATCH_SECONDS
            ):
                self._flush()  # the reply is read later: where a rank learns of divergence must be deterministic
            return None
        self._ahead = 0
        self._flush()
        reply = self._receive_reply()
        return [reply.payloads[which] for which in reply.of] if reply.kind == "values" else None

    def record_thread_collective(self, group: str, members: tuple[int, ...], operator: str, root: int | None) -> None:
        """Note a collective that was called in one of the program's own threads; it is not waited for.

        At the end, only its group's occurrence on the other ranks is checked: the order of a thread's calls relative
        to others is not deterministic.
        """
        thread, own = threading.current_thread(), threading.get_ident()
        if self.over or own == self._thread or (group, own) in self._of_threads:
            return
        if len(self._of_threads) >= _MAX_THREADS:
            return
        module, phase, step = self.situation()
        site = describe_site(_THREAD_SITE_OFFSET + len(self._of_threads), sys._getframe(1))
        call = Collective(
            group, operator, (), None, None, root, (), module, phase, step, site.number, WaitMode.NO
        )  # fmt: skip
        self._of_threads[group, own] = thread, (Group(group, members), site, ThreadCall(call))

    def track_thread_joins(self) -> Callable[[], None]:
        """Note which threads the program joins without a timeout; returns the undo function."""
        patches, real = Patches(), threading.Thread.join

        @functools.wraps(real)
        def join(thread: threading.Thread, timeout: float | None = None) -> None:
            if timeout is None and not threading.current_thread().daemon:
                self._joined.add(thread)
            if threading.get_ident() != self._thread:
                real(thread, timeout)
                return
            self._joining = thread
            try:
                real(thread, timeout)
            finally:
                self._joining = None

        patches.set(threading.Thread, "join", join)
        return patches.undo

    def exchange_answers(self, question_name: str, own_answer: bytes) -> list[bytes] | None:
        """The answers of all rehearsed ranks to the same question; None if not all of them ask it."""
        if self.over or threading.get_ident() != self._thread:
            return None
        key = f"asked: {question_name}"
        if key not in self._groups:
            self._groups.add(key)
            self._waiting_to_go.append(Group(key, tuple(sorted(self.ranks)), True))
        question = Collective(
            key, question_name, (), None, None, None, (), None, "", 0, 0, WaitMode.IF_NEED_BE, own_answer
        )
        self._waiting_to_go.append(question)
        self._flush()
        reply = self._receive_reply()
        return [reply.payloads[which] for which in reply.of] if reply.kind == "values" else None

    def report_batch_read(self, batch: tuple[tuple[str, str], ...], num_batches: int, steps: int) -> None:
        """Report that the rank has read a batch."""
        if not self.over:
            self._waiting_to_go.append(RankContext(batch, num_batches, steps))

    def report_end(self, end_state: End, steps: int) -> None:
        """Report that the program has ended, after this many optimizer steps."""
        try:
            groups: set[str] = set()
            for (group, _), (thread, told) in self._of_threads.items():
                # At exit Python waits for non-daemon threads, and the program for those that it joins.
                if group not in groups and (not thread.daemon or thread in self._joined):
                    groups.add(group)
                    self._waiting_to_go += told
            self._waiting_to_go.append(RankEnded(end_state, steps, _has_threads()))
            self._flush()
            self._connection.close()
        except OSError:  # the exchange has ended, so there is nobody to tell
            pass
        self.over = True

    def _flush(self) -> None:
        # The call sites hold a reference to the list, so empty it instead of replacing it.
        encoded = self._encode(self._waiting_to_go)
        self._waiting_to_go.clear()
        self._connection.send_bytes(encoded)
        self._sent_at = time.monotonic()

    def _receive_reply(self) -> Reply:
        reply = self._decode(self._connection.recv_bytes())
        if reply.kind == "stop":
            self.over = True
            raise RanksDiverged(reply)
        if reply.kind == "enough":
            self.over = True
            raise PeerStepLimitReached
        return reply


def _has_threads() -> bool:
    """Whether any of the program's own threads is still running."""
    others = (one for one in threading.enumerate() if one is not threading.current_thread())
    return any(not getattr(one, "is_gonogo", False) for one in others)


def worker_connection() -> Connection:
    """The connection that this worker inherited."""
    return Connection(os.dup(EXCHANGE_DESCRIPTOR))


def connect_over_network(exchange_address: ExchangeAddress) -> Connection:
    """A connection to an exchange on another machine."""
    host, _, port = exchange_address.address.rpartition(":")
    connection = Client((host, int(port)), authkey=bytes.fromhex(exchange_address.key))
    disable_nagle(connection)
    return connection
