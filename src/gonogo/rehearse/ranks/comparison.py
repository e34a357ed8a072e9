"""Compares the ranks' calls, collective by collective, and finds where they diverge. No sockets, no clock.

Ranks run as in the real program: a synchronous collective blocks a rank until the others have reached it. Within a
group, calls are compared in their order. If every rank has ended or is waiting and no call is complete, the ranks
would wait for each other forever.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from gonogo.evidence.rehearsal.conditions import conditions_around_stack
from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.finding.divergence import CollectiveCall, Divergence, Kind, Side
from gonogo.finding.waits import WaitingSide
from gonogo.rehearse.ranks.call_log import CallLog
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
)

_MAX_LAST_CALLS = 4
"""How many of a rank's last calls are kept."""
_FAILED: tuple[End, ...] = ("raised", "unsupported", "killed")

_EMPTY_CONTEXT = RankContext((), 0, 0)

Send = Callable[[int, Reply], None]


@dataclass
class _RankCall:
    """A call that a rank has made; ``index`` is its position within the group."""

    collective: Collective
    members: tuple[int, ...]
    index: int
    order: int
    before: tuple[_RankCall, ...]
    of_thread: bool = False
    """Whether a thread that the program started made it."""


@dataclass
class _RankCalls:
    """What one rank has reported so far: its latest calls, the call it waits in, and how it ended."""

    sites: dict[int, CallSite] = field(default_factory=dict)
    waiting: _RankCall | None = None
    last: deque[_RankCall] = field(default_factory=lambda: deque(maxlen=_MAX_LAST_CALLS))
    end: End | None = None
    made: int = 0
    context: RankContext = _EMPTY_CONTEXT
    steps: int = 0
    has_threads: bool = False
    stuck: bool = False
    """Whether all its threads wait, and not in a collective that is compared."""


@dataclass
class _GroupCalls:
    """The calls of one process group that not all rehearsed members have made yet."""

    members: tuple[int, ...]
    pending: dict[int, deque[_RankCall]]
    counts: dict[int, int]
    agreed: _RankCall | None = None
    """The last call in which all members agreed."""
    only_asks: bool = False
    of_threads: dict[int, _RankCall] = field(default_factory=dict)
    """The first call made by a thread that the program started, by rank."""
    earlier: dict[int, _RankCall] | None = None
    """The first of the most recent agreeing calls that were made at different places in the code."""


class Comparison:
    """Compares the collective calls of the rehearsed ranks. ``send`` is called with a rank and its reply."""

    def __init__(self, ranks: Iterable[int], send: Send, log: CallLog | None = None) -> None:
        self.ranks = {rank: _RankCalls() for rank in ranks}
        self.divergence: Divergence | None = None
        self.waits: dict[int, WaitingSide] = {}
        """The collectives in which ranks wait for one that is stuck, once nobody goes on."""
        self._send = send
        self._log = log
        self._groups: dict[str, _GroupCalls] = {}
        self._over = False

    def handle_message(self, rank: int, message: Message) -> None:
        """Process one message of a rank."""
        state = self.ranks[rank]
        if isinstance(message, Collective):
            self._handle_call(rank, state, message)
        elif isinstance(message, CallSite):
            state.sites[message.number] = message
            if self._log is not None:
                self._log.sites[rank, message.number] = message
        elif isinstance(message, RankContext):
            state.context = message
        elif isinstance(message, Group):
            if message.key not in self._groups:
                rehearsed = [member for member in message.members if member in self.ranks]
                self._groups[message.key] = _GroupCalls(
                    message.members,
                    {member: deque() for member in rehearsed},
                    dict.fromkeys(rehearsed, 0),
                    only_asks=message.only_asks,
                )
        elif isinstance(message, ThreadCall):
            group = self._groups[message.call.group]
            group.of_threads[rank] = _RankCall(message.call, group.members, 0, state.made, (), of_thread=True)
        elif isinstance(message, RankEnded):
            state.steps = message.steps
            state.has_threads = message.has_threads
            self.record_end(rank, message.how)
        else:
            assert isinstance(message, Hello)

    def record_end(self, rank: int, end_state: End = "killed") -> None:
        """Record that the rank has ended; only the first report counts."""
        state = self.ranks[rank]
        if state.end is not None:
            return
        state.end = end_state
        state.waiting = None
        self._detect_stall()

    def record_stuck(self, rank: int, is_stuck: bool) -> None:
        """Record whether all threads of a rank wait."""
        state = self.ranks[rank]
        if state.stuck != is_stuck:
            state.stuck = is_stuck
            if is_stuck:
                self._detect_stall()

    def _handle_call(self, rank: int, state: _RankCalls, call: Collective) -> None:
        if self._over:
            if call.waits:
                self._send(rank, Reply("stop"))
            return
        group = self._groups[call.group]
        made = _RankCall(call, group.members, group.counts[rank], state.made, tuple(state.last))
        group.counts[rank] += 1
        if not group.only_asks:
            state.made += 1
            if self._log is not None:
                self._log.record_call(rank, call, group.members, made.index)
            state.last.append(_RankCall(call, group.members, made.index, made.order, ()))
        group.pending[rank].append(made)
        if call.waits:
            state.waiting = made
        if len(group.pending[rank]) == 1:
            self._compare_next_calls(group)
        if state.waiting is not None and not self._over:
            self._detect_stall()

    def _compare_next_calls(self, group: _GroupCalls) -> None:
        """Compare the next calls while each rehearsed member has one."""
        while all(group.pending.values()):
            heads = {rank: pending.popleft() for rank, pending in group.pending.items()}
            if group.only_asks:
                self._reply_to(group, heads)
                continue
            if len({made.collective.signature for made in heads.values()}) > 1:
                self._report_divergence(_divergence_kind(heads), heads)
                return
            group.agreed = next(iter(heads.values()))
            if self._log is not None:
                self._log.alike[group.agreed.collective.group] = group.agreed.index + 1
            if len({self.ranks[rank].sites[made.collective.site].place for rank, made in heads.items()}) == 1:
                group.earlier = None
            elif group.earlier is None:
                group.earlier = heads
            self._reply_to(group, heads)

    def _reply_to(self, group: _GroupCalls, pending_calls: dict[int, _RankCall]) -> None:
        waiting = [rank for rank, made in pending_calls.items() if self.ranks[rank].waiting is made]
        if not waiting:
            return
        reply = _sent_values(group, pending_calls)
        for rank in waiting:
            self.ranks[rank].waiting = None
            self._send(rank, reply)

    # -- stalls -------------------------------------------------------------------------------------------------------

    def _detect_stall(self) -> None:
        if self._over or any(
            state.end is None and state.waiting is None and not state.stuck for state in self.ranks.values()
        ):
            return
        waiting = {rank: state.waiting for rank, state in self.ranks.items() if state.waiting is not None}
        spared = [rank for rank, made in waiting.items() if made.collective.waits is WaitMode.IF_NEED_BE]
        if spared:
            for rank in spared:
                self.ranks[rank].waiting = None
                self._send(rank, Reply("unknown"))
            return
        stuck = next((rank for rank, state in self.ranks.items() if state.stuck and state.end is None), None)
        failed = next(((rank, state.end) for rank, state in self.ranks.items() if state.end in _FAILED), None)
        if failed is not None:
            self._stop_ranks(Reply("stop", stopped_by=(failed[0], str(failed[1]))))
        elif any(state.end == "enough" for state in self.ranks.values()):
            self._stop_ranks(Reply("enough"))
        elif stuck is not None:
            self.waits = {rank: _as_wait(self.ranks[rank], made) for rank, made in waiting.items()}
            self._stop_ranks(Reply("stop", stopped_by=(stuck, "stuck")))
        elif waiting:
            ended = any(state.end == "completed" for state in self.ranks.values())
            self._report_divergence("ended" if ended else "deadlock", waiting)
        else:
            self._report_unmatched_call()

    def _report_unmatched_call(self) -> None:
        """Report a call that only some members have made, after all ranks have completed."""
        for group in self._groups.values():
            heads = {rank: pending[0] for rank, pending in group.pending.items() if pending}
            if heads and not group.only_asks:
                self._report_divergence("ended", heads, tuple(group.pending))
                return
        for group in self._groups.values():
            if group.of_threads and self._have_others_made_no_calls(group):
                self._report_divergence("ended", group.of_threads, tuple(group.pending))
                return

    def _have_others_made_no_calls(self, group: _GroupCalls) -> bool:
        """Whether the group's other members have called nothing in it, in any thread, and can't do so any more."""
        others = [rank for rank in group.pending if rank not in group.of_threads]
        return bool(others) and not any(group.counts[rank] or self.ranks[rank].has_threads for rank in others)

    def _stop_ranks(self, reply: Reply) -> None:
        self._over = True
        for rank, state in self.ranks.items():
            if state.end is None and not state.stuck:
                state.waiting = None
                self._send(rank, reply)

    # -- the divergence -----------------------------------------------------------------------------------------------

    def _report_divergence(
        self, kind: Kind, pending_calls: dict[int, _RankCall], involved_ranks: tuple[int, ...] | None = None
    ) -> None:
        ended = [rank for rank, state in self.ranks.items() if state.end == "completed" and rank not in pending_calls]
        if involved_ranks is not None:
            ended = [rank for rank in ended if rank in involved_ranks]
        sides: dict[object, list[int]] = defaultdict(list)
        for rank, made in pending_calls.items():
            sides[(made.collective.group, made.index, made.collective.signature)].append(rank)
        if kind not in ("other-call", "other-size"):
            for rank in ended:
                sides["ended"].append(rank)
        group = self._groups[next(iter(pending_calls.values())).collective.group]
        places: dict[int, list[int]] = defaultdict(list)
        for rank, made in (group.earlier or {}).items():
            places[self.ranks[rank].sites[made.collective.site].place].append(rank)
        self.divergence = Divergence(
            kind,
            self._divergence_sides(sides.values(), pending_calls),
            self._find_and_convert_call(group.agreed) if group.agreed is not None else None,
            self._divergence_sides(places.values(), group.earlier or {}),
        )
        self._over = True
        for rank, state in self.ranks.items():
            if state.end is None:
                state.waiting = None
                self._send(rank, Reply("stop"))

    def _divergence_sides(self, ranks: Iterable[list[int]], pending_calls: dict[int, _RankCall]) -> tuple[Side, ...]:
        listed = [self._divergence_side(some, pending_calls.get(some[0])) for some in ranks]
        return tuple(sorted(listed, key=lambda side: (-len(side.ranks), side.ranks)))

    def _divergence_side(self, ranks: list[int], recorded_call: _RankCall | None) -> Side:
        first = self.ranks[ranks[0]]
        before = recorded_call.before if recorded_call is not None else tuple(first.last)
        site = first.sites.get(recorded_call.collective.site) if recorded_call is not None else None
        in_step = (
            None if recorded_call is None or recorded_call.of_thread else recorded_call.collective.step
        )  # threads call independently of steps
        steps = in_step if in_step is not None else max(first.steps, first.context.steps)
        return Side(
            ranks=tuple(sorted(ranks)),
            call=_as_collective_call(first, recorded_call) if recorded_call is not None else None,
            before=tuple(_as_collective_call(first, one) for one in before),
            batch=first.context.batch,
            batches=first.context.batches,
            steps=steps,
            functions=site.functions if site is not None else (),
        )

    def _find_and_convert_call(self, recorded_call: _RankCall) -> CollectiveCall:
        rank = next(rank for rank in recorded_call.members if rank in self.ranks)
        return _as_collective_call(self.ranks[rank], recorded_call)


def _as_collective_call(rank: _RankCalls, recorded_call: _RankCall) -> CollectiveCall:
    collective = recorded_call.collective
    site = rank.sites.get(collective.site)
    return CollectiveCall(
        operator=collective.operator,
        group=recorded_call.members,
        index=recorded_call.index,
        sizes=collective.sizes,
        dtype=collective.dtype,
        reduction=collective.reduction,
        root=collective.root,
        module=collective.module,
        parameters=tuple(str(number) for number in collective.parameters),
        phase=collective.phase,
        step=collective.step,
        frames=site.frames if site is not None else (),
    )


def _as_wait(state: _RankCalls, recorded_call: _RankCall) -> WaitingSide:
    call = _as_collective_call(state, recorded_call)
    return WaitingSide("", "collective", call.frames, what=call.operator)


def _divergence_kind(pending_calls: dict[int, _RankCall]) -> Kind:
    """Whether the calls differ, or are the same with different sizes or dtypes."""
    calls = {
        (made.collective.operator, made.collective.root, made.collective.parameters) for made in pending_calls.values()
    }
    groups_made = any(operator == "new_group" for operator, _, _ in calls)
    return "other-call" if len(calls) > 1 or groups_made else "other-size"


def _sent_values(group: _GroupCalls, pending_calls: dict[int, _RankCall]) -> Reply:
    """What each member sent; members that aren't rehearsed send what the lowest rehearsed one does."""
    one = next(iter(pending_calls.values())).collective
    if one.payload_of_root:
        source = pending_calls.get(one.root if one.root is not None else -1) or pending_calls[min(pending_calls)]
        payload = source.collective.payload
        return Reply("go") if payload is None else Reply("values", (payload,), (0,) * len(group.members))
    payloads = {rank: made.collective.payload for rank, made in pending_calls.items()}
    if all(payload is None for payload in payloads.values()):
        return Reply("go")
    unique: dict[bytes, int] = {}
    of: dict[int, int] = {}
    for rank, payload in payloads.items():
        if payload is None:
            return Reply("unknown")
        of[rank] = unique.setdefault(payload, len(unique))
    lowest = of[min(of)]
    return Reply("values", tuple(unique), tuple(of.get(member, lowest) for member in group.members))


def add_parameter_names(divergence: Divergence, records: Sequence[RankRecord]) -> Divergence:
    """The divergence with the names of its parameters and the conditions around its calls."""
    names = {record.rank: record.parameter_names for record in records}

    def with_group_names(side: Side) -> Side:
        known = names.get(side.ranks[0], {})
        call = _with_group_names(side.call, known) if side.call is not None else None
        guards = tuple(conditions_around_stack(call.frames)) if call is not None else ()
        return msgspec.structs.replace(
            side, call=call, guards=guards, before=tuple(_with_group_names(one, known) for one in side.before)
        )

    return msgspec.structs.replace(
        divergence,
        sides=tuple(map(with_group_names, divergence.sides)),
        earlier=tuple(map(with_group_names, divergence.earlier)),
    )


def _with_group_names(call: CollectiveCall, names: dict[int, str]) -> CollectiveCall:
    return msgspec.structs.replace(
        call, parameters=tuple(names.get(int(number), f"#{number}") for number in call.parameters)
    )


def discard_records_after_divergence(records: Sequence[RankRecord], divergence: Divergence) -> None:
    """Discard what ranks did after the call at which they diverged: the real run never gets there."""
    for record in records:
        on_side = next((side for side in divergence.sides if record.rank in side.ranks), None)
        if on_side is not None and on_side.call is not None and record.outcome in ("completed", "raised"):
            record.outcome = "diverged"
            record.failure = None
