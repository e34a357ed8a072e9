"""The search: what fits is found, the fastest first, with few rehearsals; the most that fits is found too."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from plan_facts import request
from plan_meter import GIB, FakeMeter, allocated

from gonogo.finding import UserError, Verdict
from gonogo.finding.trials.planned import SolutionSummary
from gonogo.trials.plan.answer import plan_report
from gonogo.trials.plan.answer_solved import solved_report
from gonogo.trials.plan.choice import UNCERTAINTY_BY_SOURCE, Choice, usable_gpu_memory
from gonogo.trials.plan.lengths import parse_lengths, with_lengths
from gonogo.trials.plan.measure import Measurement, Meter
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.search import PlanResult, check_batch, search
from gonogo.trials.plan.solve import SolveResult, Unknown, check_unknown, solve
from gonogo.trials.plan.strategy import Family, Sharding

MODEL = Path("model")


def planned(asked: PlanRequest, meter: FakeMeter | None = None) -> PlanResult:
    return search(asked, cast(Meter, meter or FakeMeter()), lambda text: None)


def solved(unknown: Unknown, asked: PlanRequest, meter: FakeMeter | None = None) -> SolveResult:
    return solve(unknown, asked, cast(Meter, meter or FakeMeter()), lambda text: None)


def really_takes(choice: Choice, asked: PlanRequest) -> float:
    return allocated(Measurement(choice.strategy, 0, asked.seq_len, asked.world_size))


def test_the_fastest_that_fits_is_rehearsed_whole() -> None:
    asked = request(MODEL)
    meter = FakeMeter()
    plan = planned(asked, meter)
    assert plan.fitting[0].source == "rehearsed"
    assert plan.fitting[0].allocated == really_takes(plan.fitting[0], asked)
    assert not plan.fitting[0].strategy.checkpointing
    assert [cell for cell in meter.cells if cell.depth == 0] == [cell for cell in meter.cells if cell.real]
    assert len(meter.cells) <= 9
    assert plan_report(plan).verdict is Verdict.GO


def test_small_buckets_are_told_of_where_they_decide() -> None:
    plan = planned(request(MODEL, "8xL40S"), FakeMeter(buckets=12.0))
    spread = {(choice.strategy.family, choice.strategy.checkpointing) for choice in plan.fitting}
    assert (Family(2, small_buckets=True), True) in spread
    assert (Family(2), True) not in spread
    assert not any(choice.strategy.family.small_buckets for choice in (*plan.too_large, *plan.unsettled))
    roomy = FakeMeter(buckets=12.0)
    assert not any(choice.strategy.family.small_buckets for choice in planned(request(MODEL), roomy).fitting)
    assert not any(cell.strategy.family.small_buckets for cell in roomy.cells)


def test_sequences_are_split_where_they_are_too_long_otherwise() -> None:
    def context_sizes(seq_len: int, sharding: Sharding) -> set[int]:
        asked = request(MODEL, seq_len=seq_len, sharding=sharding, global_batch=8)
        return {choice.strategy.family.context for choice in planned(asked).fitting}

    assert context_sizes(4096, "fsdp2") == context_sizes(4096, "zero") == {1}
    assert context_sizes(320 * 1024, "fsdp2") == {4}
    assert context_sizes(160 * 1024, "zero") == {1, 2}


def test_only_as_many_nodes_share_a_replica_as_are_needed() -> None:
    def replicas(gpus: str) -> set[int]:
        asked = request(MODEL, gpus, 4, sharding="fsdp2")
        return {choice.strategy.family.replicas for choice in planned(asked).fitting}

    assert replicas("8xA100-80G") == {4, 1}
    assert replicas("2xA100-80G") == {2, 1}


@pytest.mark.parametrize("gpus", ["8xA100-80G", "8xRTX-4090", "2xA100-40G", "4xL40S"])
def test_nothing_that_is_said_to_fit_does_not(gpus: str) -> None:
    asked = request(MODEL, gpus)
    plan = planned(asked)
    for choice in plan.fitting:
        if choice.source != "formula":  # the formula knows a real model, not this one
            assert really_takes(choice, asked) * 1.05 <= usable_gpu_memory(asked)
    for choice in plan.too_large:
        if choice.source != "formula":
            assert really_takes(choice, asked) * (1 + UNCERTAINTY_BY_SOURCE["extended"]) > usable_gpu_memory(asked)


def test_what_is_measured_short_is_told_exactly_for_the_whole() -> None:
    asked = request(MODEL)
    extended = [choice for choice in planned(asked).fitting if choice.source == "extended"]
    assert extended
    for choice in extended:
        assert choice.allocated == pytest.approx(really_takes(choice, asked))


def test_a_group_whose_rehearsal_fails_is_named_and_left_out() -> None:
    plan = planned(request(MODEL), FakeMeter(broken=frozenset({2})))
    assert {choice.strategy.family.zero for choice, _ in plan.failed} == {2}
    assert plan.fitting[0].strategy.family.zero == 3
    assert any("AssertionError" in skipped.why.en for skipped in plan_report(plan).skipped)


def test_where_nothing_fits_the_answer_is_no_go_with_a_cure() -> None:
    plan = planned(request(MODEL, "1xT4", global_batch=1, seq_len=65536))
    report = plan_report(plan)
    assert (plan.fitting, report.verdict) == ([], Verdict.NO_GO)
    assert report.plan is not None
    assert all(one.shortfall.en and one.would_fit for one in report.plan.too_large)


def test_where_all_rehearsals_fail_it_can_not_tell() -> None:
    plan = planned(request(MODEL), FakeMeter(broken=frozenset({0, 2, 3})))
    assert plan_report(plan).verdict is Verdict.CANNOT_TELL


def test_a_batch_that_does_not_divide_names_its_neighbours() -> None:
    with pytest.raises(UserError, match="--global-batch 60: can't be divided evenly among 8 GPUs; use 56 or 64"):
        check_batch(request(MODEL, global_batch=60))


def most(unknown: Unknown, asked: PlanRequest, family: Family, value: int) -> bool:
    """Whether a value leaves room by the laws of the fake meter."""
    from gonogo.trials.plan.strategy import Strategy

    samples = value if unknown == "micro-batch" else 1
    length = value if unknown == "seq-len" else asked.seq_len
    world = value if unknown == "gpus" else asked.world_size
    taken = allocated(Measurement(Strategy(family, True, samples, 1), 0, length, world)) * 1.05
    return taken * (1 + UNCERTAINTY_BY_SOURCE["rehearsed"]) <= usable_gpu_memory(asked)


@pytest.mark.parametrize("unknown", ["micro-batch", "seq-len", "gpus"])
def test_the_most_that_fits(unknown: Unknown) -> None:
    asked = request(MODEL, "8xA100-40G")
    found = solved(unknown, asked)
    best = found.solutions[0]
    assert best.choice.source == "rehearsed"
    assert most(unknown, asked, best.choice.strategy.family, best.value)
    harder = best.value // 2 if unknown == "gpus" else best.value * 9 // 8
    assert best.at_limit or not most(unknown, asked, best.choice.strategy.family, harder)
    assert solved_report(found).verdict is Verdict.GO
    for solution in found.solutions:
        if not solution.choice.strategy.checkpointing:
            continue
        assert most(unknown, asked, solution.choice.strategy.family, solution.value)


def test_fewer_gpus_are_on_fewer_nodes() -> None:
    found = solved("gpus", request(MODEL, "8xRTX-4090", 2))
    report = solved_report(found)
    assert report.plan is not None
    for solution, one in zip(found.solutions, report.plan.fitting, strict=True):
        assert isinstance(one, SolutionSummary)
        assert one.gpus * one.nodes == solution.value == one.solved
        assert one.gpus <= 8


def test_an_unknown_that_there_is_not() -> None:
    with pytest.raises(UserError, match="--solve nodes: must be one of micro-batch, seq-len, gpus, generations"):
        check_unknown("nodes", request(MODEL))
    with pytest.raises(UserError, match="--solve generations: only --task grpo and rloo"):
        check_unknown("generations", request(MODEL))


def test_a_model_too_large_for_every_value() -> None:
    found = solved("micro-batch", request(MODEL, "1xT4", seq_len=131072))
    assert solved_report(found).verdict is Verdict.NO_GO
    assert found.too_large
    assert all(choice.reserved > 14 * GIB for choice in found.too_large)


def test_memory_at_other_lengths_follows_the_meter() -> None:
    plan = planned(request(MODEL))
    meter = FakeMeter()
    found = with_lengths(plan, (2048, 8192, 65536), cast(Meter, meter), lambda text: None).memory_at
    first = plan.fitting[0].strategy
    assert [(at.strategy, at.seq_len) for at in found[:3]] == [
        (first.label.en, length) for length in (2048, 8192, 65536)
    ]
    assert len(found) == 3 * len(plan.fitting[:3])
    for at in found[:3]:
        takes = allocated(Measurement(first, 0, at.seq_len, 8))
        assert at.allocated_bytes == pytest.approx(takes, rel=0.01)
        assert at.fits == (at.reserved_bytes * 1.12 <= usable_gpu_memory(plan.request))
    assert [at.fits for at in found[:3]] == [True, True, False]
    assert with_lengths(plan, (), cast(Meter, meter), lambda text: None) is plan


def test_memory_at_shows_what_does_not_fit_either() -> None:
    plan = planned(request(MODEL, "1xRTX-4090", seq_len=131072))
    assert not plan.fitting
    found = with_lengths(plan, (2048, 65536), cast(Meter, FakeMeter()), lambda text: None).memory_at
    assert [at.fits for at in found] == [True, False]


@pytest.mark.parametrize(
    "text", ["", "2048,", "2k", "-1", "4", "8,9,10,11,12,13,14,15,16", "1,2", "2048;4096", "9" * 12]
)
def test_lengths_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--memory-at"):
        parse_lengths(text)


def test_lengths_are_sorted() -> None:
    assert parse_lengths("8192, 2048,2048") == (2048, 8192)
    assert parse_lengths(None) == ()
