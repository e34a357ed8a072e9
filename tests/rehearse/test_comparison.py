"""Where ranks part, from what they say they call: no sockets, no torch."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from gonogo.finding.frame import Frame
from gonogo.rehearse.ranks.comparison import Comparison
from gonogo.virtual.protocol.messages import (
    CallSite,
    Collective,
    Group,
    Hello,
    RankContext,
    RankEnded,
    Reply,
    ThreadCall,
    WaitMode,
)


class World:
    """Ranks that call, and what they are told."""

    def __init__(self, ranks: int = 2) -> None:
        self.told: dict[int, list[Reply]] = defaultdict(list)
        self.comparison = Comparison(range(ranks), lambda rank, reply: self.told[rank].append(reply))
        for rank in range(ranks):
            self.comparison.handle_message(rank, Hello(rank))
            self.comparison.handle_message(rank, Group("world", tuple(range(ranks))))
            for line in (1, 2, 3):
                frames = (Frame("train.py", line, "main", owner="user"),)
                self.comparison.handle_message(rank, CallSite(line, frames, ("main",), line))

    def call(self, rank: int, operator: str = "allreduce", **changes: Any) -> None:
        values: dict[str, Any] = {
            "group": "world", "operator": operator, "sizes": (4,), "dtype": "float32", "reduction": "SUM",
            "root": None, "parameters": (), "module": None, "phase": "forward", "step": 0, "site": 1,
            "waits": WaitMode.YES,
        }  # fmt: skip
        self.comparison.handle_message(rank, Collective(**{**values, **changes}))

    def kinds(self, rank: int) -> list[str]:
        return [reply.kind for reply in self.told[rank]]


@pytest.fixture
def world() -> World:
    return World()


def test_a_rank_waits_until_all_have_come(world: World) -> None:
    world.call(0)
    assert world.kinds(0) == []
    world.call(1)
    assert (world.kinds(0), world.kinds(1)) == (["go"], ["go"])
    assert world.comparison.divergence is None


def test_known_values_come_back_by_member() -> None:
    world = World(3)
    for rank, payload in enumerate((b"a", b"b", b"a")):
        world.call(rank, payload=payload)
    reply = world.told[2][0]
    assert reply.kind == "values"
    assert [reply.payloads[which] for which in reply.of] == [b"a", b"b", b"a"]


def test_ranks_that_are_not_rehearsed_send_what_the_lowest_does() -> None:
    told: list[Reply] = []
    comparison = Comparison([0, 3], lambda rank, reply: told.append(reply))
    for rank, payload in ((0, b"a"), (3, b"d")):
        comparison.handle_message(rank, Group("world", (0, 1, 2, 3)))
        comparison.handle_message(rank, CallSite(1, (), (), 1))
        call = Collective("world", "allreduce", (), None, "SUM", None, (), None, "init", 0, 1, WaitMode.YES, payload)
        comparison.handle_message(rank, call)
    assert [told[0].payloads[which] for which in told[0].of] == [b"a", b"a", b"a", b"d"]


def test_what_one_does_not_know_nobody_knows(world: World) -> None:
    world.call(0, payload=b"a")
    world.call(1)
    assert world.kinds(0) == ["unknown"]


def test_a_broadcast_gives_the_roots_value(world: World) -> None:
    world.call(0, "broadcast", root=1, payload_of_root=True)
    world.call(1, "broadcast", root=1, payload_of_root=True, payload=b"b")
    assert world.told[0][0].payloads == (b"b",)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"operator": "barrier"}, "other-call"),
        ({"parameters": (7,)}, "other-call"),
        ({"root": 1}, "other-call"),
        ({"sizes": (5,)}, "other-size"),
        ({"dtype": "int64"}, "other-size"),
        ({"reduction": "MAX"}, "other-size"),
    ],
)
def test_another_call_is_a_divergence(world: World, changes: dict[str, Any], kind: str) -> None:
    world.call(0)
    world.call(1, **changes)
    divergence = world.comparison.divergence
    assert divergence is not None
    assert divergence.kind == kind
    assert [side.ranks for side in divergence.sides] == [(0,), (1,)]
    assert world.kinds(0) == world.kinds(1) == ["stop"]


def test_splits_of_an_all_to_all_may_differ(world: World) -> None:
    world.call(0, "alltoall_base", sizes=(4,), uneven=True)
    world.call(1, "alltoall_base", sizes=(8,), uneven=True)
    assert world.comparison.divergence is None


def test_the_side_of_most_ranks_comes_first_and_says_what_went_before() -> None:
    world = World(3)
    for rank in range(3):
        world.call(rank, "broadcast", root=0)
    world.comparison.handle_message(2, RankContext((("input_ids", "int64 [2, 8]"),), 3, 1))
    world.call(2, "barrier", site=2, module="visual")
    world.call(0)
    world.call(1)
    divergence = world.comparison.divergence
    assert divergence is not None
    most, one = divergence.sides
    assert (most.ranks, one.ranks) == ((0, 1), (2,))
    assert one.call is not None
    assert (one.call.operator, one.call.module, one.call.frames[0].line) == ("barrier", "visual", 2)
    assert [call.operator for call in one.before] == ["broadcast"]
    assert (one.batches, one.batch) == (3, (("input_ids", "int64 [2, 8]"),))
    assert divergence.agreed is not None
    assert divergence.agreed.operator == "broadcast"


def test_a_rank_that_has_ended_leaves_the_others_waiting(world: World) -> None:
    world.call(0)
    world.comparison.handle_message(1, RankEnded("completed", 2))
    divergence = world.comparison.divergence
    assert divergence is not None
    assert divergence.kind == "ended"
    assert [(side.ranks, side.call is None, side.steps) for side in divergence.sides] == [
        ((0,), False, 0),
        ((1,), True, 2),
    ]


def test_calls_that_nobody_waits_for_are_missed_at_the_end(world: World) -> None:
    world.call(0, waits=WaitMode.NO)
    for rank in range(2):
        world.comparison.handle_message(rank, RankEnded("completed"))
    assert world.comparison.divergence is not None


def of_thread(world: World, rank: int, group: str) -> None:
    call = Collective(group, "allreduce", (), None, None, None, (), None, "exit", 0, 1, WaitMode.NO)
    world.comparison.handle_message(rank, ThreadCall(call))


@pytest.mark.parametrize(
    ("also", "has_threads", "parts"),
    [((), False, True), ((1,), False, False), ((), True, False)],
    ids=["of one rank alone", "of both ranks", "while the other's threads run"],
)
def test_a_threads_collective_that_another_rank_never_calls(
    world: World, also: tuple[int, ...], has_threads: bool, parts: bool
) -> None:
    for rank in (0, *also):
        of_thread(world, rank, "world")
    world.comparison.handle_message(0, RankEnded("completed"))
    world.comparison.handle_message(1, RankEnded("completed", has_threads=has_threads))
    assert (world.comparison.divergence is not None) is parts


def test_a_thread_that_calls_early_has_not_stepped_less_often(world: World) -> None:
    of_thread(world, 0, "world")
    for rank in range(2):
        world.comparison.handle_message(rank, RankEnded("completed", steps=12))
    assert world.comparison.divergence is not None
    assert {side.steps for side in world.comparison.divergence.sides} == {12}


def test_a_threads_collective_beside_the_main_threads_is_not_compared(world: World) -> None:
    of_thread(world, 0, "world")
    for rank in range(2):
        world.call(rank)
    for rank in range(2):
        world.comparison.handle_message(rank, RankEnded("completed"))
    assert world.comparison.divergence is None


@pytest.mark.parametrize("how", ["raised", "unsupported", "killed"])
def test_anothers_failure_is_no_divergence(world: World, how: Any) -> None:
    world.call(0)
    world.comparison.handle_message(1, RankEnded(how))
    assert world.comparison.divergence is None
    assert world.told[0] == [Reply("stop", stopped_by=(1, how))]


def test_a_failure_after_the_ranks_have_diverged_is_not_the_cause(world: World) -> None:
    world.call(1, "barrier", waits=WaitMode.NO)
    world.comparison.handle_message(1, RankEnded("raised"))
    world.call(0)
    assert world.comparison.divergence is not None


def test_ranks_stopped_after_their_steps_do_not_hang_the_others(world: World) -> None:
    world.call(0)
    world.comparison.handle_message(1, RankEnded("enough"))
    assert world.comparison.divergence is None
    assert world.kinds(0) == ["enough"]


def test_groups_crossed_are_a_deadlock(world: World) -> None:
    for rank in range(2):
        world.comparison.handle_message(rank, Group("other", (0, 1)))
    world.call(0)
    world.call(1, group="other")
    divergence = world.comparison.divergence
    assert divergence is not None
    assert divergence.kind == "deadlock"


def test_asynchronous_calls_may_cross(world: World) -> None:
    for rank in range(2):
        world.comparison.handle_message(rank, Group("other", (0, 1)))
    world.call(0, waits=WaitMode.IF_NEED_BE, payload=b"a")
    world.call(1, group="other", waits=WaitMode.YES)
    assert world.kinds(0) == ["unknown"]  # it is let go, so that it can come to the other's call
    world.call(0, group="other", waits=WaitMode.YES)
    world.call(1, waits=WaitMode.YES, payload=b"b")
    assert world.comparison.divergence is None
    assert world.kinds(1) == ["go", "values"]


def test_calls_at_other_lines_that_were_matched_are_remembered(world: World) -> None:
    world.call(0, site=1)
    world.call(1, site=1)
    world.call(0, "barrier", site=2)  # rank 0's own, taken for the next one of rank 1
    world.call(1, "barrier", site=3)
    world.call(0, "barrier", site=3)
    world.comparison.handle_message(1, RankEnded("completed"))
    divergence = world.comparison.divergence
    assert divergence is not None
    assert [side.call and side.call.frames[0].line for side in divergence.earlier] == [2, 3]


def test_a_question_is_no_collective(world: World) -> None:
    for rank in range(2):
        world.comparison.handle_message(rank, Group("asked", (0, 1), True))
    world.call(0, group="asked", waits=WaitMode.IF_NEED_BE, payload=b"3")
    world.call(1)
    assert world.kinds(0) == ["unknown"]
    world.call(0)
    for rank in range(2):
        world.comparison.handle_message(rank, RankEnded("completed"))
    assert world.comparison.divergence is None
