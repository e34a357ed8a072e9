"""Ranks that part because of a value that was assumed do not part for certain, however far away it was read."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.rehearsal.conditions import conditions_around_stack
from gonogo.evidence.rehearsal.rank_divergence import RankDivergence
from gonogo.evidence.rehearsal.record import AcceleratorFacts, Assumption, RankRecord, RehearsalRecord
from gonogo.finding import Certainty
from gonogo.finding.divergence import CollectiveCall, Divergence, Frame, Side

STOPS = """\
stop = False
for step in range(4):
    reduce()  # first
    if rank == 0:
        value = loss.item()  # read
        stop = value > 10
    if stop:
        break
dist.barrier()  # second
"""
PRINTS = """\
print(loss.item())  # read
for step in range(4):
    reduce()  # first
dist.barrier()  # second
"""
ONE_RANK = """\
for step in range(4):
    if loss.item() < 3:  # read
        break
dist.all_reduce(x)  # first
if rank == 0:
    dist.barrier()  # second
"""
TEST_OF_THE_RANK = """\
enough = loss.item() > 3  # read
dist.all_reduce(x)  # first
if rank == 0 and enough:
    dist.barrier()  # second
"""


@pytest.mark.parametrize(
    ("program", "certain"),
    [(STOPS, False), (PRINTS, True), (ONE_RANK, True), (TEST_OF_THE_RANK, False)],
    ids=["a loop that is left", "a value that is printed", "a test of the rank", "a test of the rank and of a value"],
)
def test_a_value_that_was_assumed_makes_it_uncertain(tmp_path: Path, program: str, certain: bool) -> None:
    path = tmp_path / "train.py"
    path.write_text(program)
    lines = program.splitlines()

    def line(mark: str) -> int:
        return next(number for number, text in enumerate(lines, 1) if f"# {mark}" in text)

    def side(rank: int, mark: str) -> Side:
        frames = (Frame(str(path), line(mark), "<module>", lines[line(mark) - 1], "user"),)
        call = CollectiveCall(mark, (0, 1), 3, frames=frames)
        return Side((rank,), call, guards=tuple(conditions_around_stack(frames)))

    ranks = [RankRecord(rank, rank, f"cuda:{rank}", "diverged") for rank in (0, 1)]
    what = "a number computed from unknown values is 16 in one step, 1/16 in the next"
    ranks[0].assumptions = [Assumption(what, f"{path}:{line('read')}", kind="number")]
    facts = AcceleratorFacts("A100-80G", "cuda", 80 << 30, 0)
    record = RehearsalRecord(["python", "train.py"], str(tmp_path), 2, 1, 2, facts, 2, None, ranks=ranks)
    record.divergence = Divergence("other-call", (side(1, "first"), side(0, "second")))
    found = RankDivergence(record, record.divergence)
    assert found.certainty is (Certainty.CERTAIN if certain else Certainty.LIKELY)
    assert (found.assumption_behind is None) is certain
