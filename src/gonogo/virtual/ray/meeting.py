"""Python objects and counts that workers send to each other: since all run here, they receive the objects
themselves."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from gonogo.finding import translated
from gonogo.virtual.collectives.in_process_ranks import InProcessRanks
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.ray.turns import TurnScheduler, must_keep_turn
from gonogo.virtual.ray.wait_limit import WaitLimit
from gonogo.virtual.unsupported import UnsupportedOperator

_ROOTED_CALLS = ("broadcast_object_list", "scatter_object_list")
_GATHERING_CALLS = ("all_gather_object", "gather_object")
_ROUNDS, _SECONDS = 200, 30.0
"""Number of checks, and seconds, without any activity after which a missing rank is given up."""


_DEADLOCK = translated(
    "only {come} of {count} ranks reached this call, and no process is making progress anymore:"
    " whether the others would reach it in a real run is not known. Print before it on each "
    "rank, or inspect a waiting rank with py-spy"
)


def install(patches: Patches, turn_scheduler: TurnScheduler) -> None:
    """Answer exchanges of Python objects between the worker processes of the cluster."""
    sent: dict[Any, bytes] = {}
    gathered: dict[Any, dict[int, bytes]] = {}
    counts: dict[Any, int] = {}
    arrived: dict[Any, set[int]] = {}
    readers: dict[Any, int] = {}

    def wait_until(is_ready: Callable[[], bool], operator: str, members: Any, count_arrived: Callable[[], int]) -> None:
        patience = WaitLimit(turn_scheduler, _ROUNDS, _SECONDS)
        while not is_ready() and turn_scheduler.ended_by is None:
            with turn_scheduler.without_turn(is_progress=False):
                time.sleep(0.01)  # hands over the turn
            if not is_ready() and patience.is_over():
                raise UnsupportedOperator(operator, _DEADLOCK.format(come=count_arrived(), count=len(members)))

    def number_call(process: Any, *call: Any) -> tuple[Any, int]:
        """A key for a call within its process group, and how many of this kind the process has made there."""
        world = (os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT"), *call)
        mine = (process.number, world)
        counts[mine] = number = counts.get(mine, 0) + 1
        return world, number

    def count_root_waiters(world: Any, number: int) -> int:
        """Number of processes that wait for the root of a call."""
        return sum(known >= number for (_, of), known in counts.items() if of == world)

    def exchange_objects(group: Any, operator: str, **what: Any) -> list[Any] | None:
        if (
            turn_scheduler.current_process is None
            or must_keep_turn()
            or operator not in (*_ROOTED_CALLS, *_GATHERING_CALLS)
        ):
            return None
        members = tuple(dist.get_process_group_ranks(group or c10d._get_default_group()))
        world, number = number_call(turn_scheduler.current_process, members, operator, what.get("root"))
        if operator in _GATHERING_CALLS:
            there = gathered.setdefault((world, number), {})
            there[dist.get_rank()] = _pickle_objects(what["objects"])
            wait_until(lambda: len(there) == len(members), operator, members, lambda: len(there))
            return [pickle.loads(there[rank]) for rank in members] if all(map(there.get, members)) else None
        if dist.get_rank() == what.get("root"):
            sent[world, number] = pickle.dumps(what.get("objects"))
        wait_until(lambda: (world, number) in sent, operator, members, lambda: count_root_waiters(world, number))
        found = sent.get((world, number))
        return None if found is None else [pickle.loads(found)]

    def wait_for_members(members: Any) -> None:
        if turn_scheduler.current_process is None or must_keep_turn():
            return
        world, number = number_call(turn_scheduler.current_process, members)
        there = arrived.setdefault((world, number), set())
        there.add(turn_scheduler.current_process.number)
        wait_until(lambda: len(there) == len(members), "barrier", members, lambda: len(there))

    def send_from_root(key: Any, is_root: bool, payload: bytes | None, should_wait: bool) -> bytes | None:
        if turn_scheduler.current_process is None or must_keep_turn():
            return None
        world, number = number_call(turn_scheduler.current_process, key)
        if is_root:
            sent[world, number] = payload or b""
        if should_wait:
            wait_until(lambda: (world, number) in sent, "broadcast", key[0], lambda: count_root_waiters(world, number))
        return sent.get((world, number))

    def exchange_among_all(members: Any, call_key: Any, payload: bytes | None) -> list[bytes] | None:
        if turn_scheduler.current_process is None or must_keep_turn():
            return None
        call = number_call(turn_scheduler.current_process, members, *call_key)
        there = gathered.setdefault(call, {})
        there[dist.get_rank()] = payload or b""
        wait_until(lambda: len(there) == len(members), call_key[0].strip("_"), members, lambda: len(there))
        readers[call] = readers.get(call, 0) + 1
        if readers[call] == len(members):  # drop the result: every layer may send some (lengths, positions)
            del gathered[call], readers[call]
        return [there[rank] for rank in members] if len(there) == len(members) else None

    patches.set(InProcessRanks, "all_send", staticmethod(exchange_among_all))
    patches.set(InProcessRanks, "wait_for_members", staticmethod(wait_for_members))
    patches.set(InProcessRanks, "exchange_objects", staticmethod(exchange_objects))
    patches.set(InProcessRanks, "root_sends", staticmethod(send_from_root))


def _pickle_objects(objects: Any) -> bytes:
    """The objects pickled, or nothing if they can't leave this process, such as a rehearsal's stand-ins."""
    try:
        return pickle.dumps(objects)
    except Exception:
        return b""
