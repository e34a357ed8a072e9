"""The time of a step with other micro-batches: what bounds it, and that a step of that size lies between."""

from __future__ import annotations

import msgspec
import pytest
import samples

from gonogo.evidence.environment.hardware import find_accelerator
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.evidence.rehearsal.work import PhaseWork, collective_key
from gonogo.finding.as_run import AsRun
from gonogo.rehearse.answer import rehearsal_report
from gonogo.trials.cure.answer import with_step_time
from gonogo.trials.what_if.step_scaling import step_scaling
from gonogo.virtual.tracing.operator_time import operator_seconds

SPEED = find_accelerator("H100-80G").speed
WEIGHTS = 64 << 20
"""Bytes of a layer's weights, which a kernel moves whatever the batch."""


def part(phase: str, samples_: int, *, operators: int = 100) -> PhaseWork:
    """A phase with products that are bound by computing, others that wait for their weights, and elementwise ones."""
    assert SPEED is not None
    kernels = [
        ("product", 2 * 10**12 * samples_, WEIGHTS + 10**6 * samples_, 10),
        ("product", 10**9 * samples_, WEIGHTS, 20),
        ("add", 0, 10**8 * samples_, 30),
    ]
    seconds = sum(operator_seconds(flops, moved, SPEED, kind) * count for kind, flops, moved, count in kernels)
    sent = {collective_key("allreduce_", 8): (2, 10**8)}
    return PhaseWork(1, phase, 0, 0, seconds, 0.0, 0, 0, 0, collectives=sent, operators=operators, kernels=kernels)


def record_of(samples_: int, **more: int) -> RehearsalRecord:
    step = PhaseWork(1, "step", 0, 0, 0.05, 0.0, 0, 0, 0, operators=50)
    rank = samples.rank_record(0, "completed")
    work = [part("forward", samples_, **more), part("backward", samples_, **more), step]
    return samples.rehearsal_record(msgspec.structs.replace(rank, steps=2, work=work))


@pytest.mark.parametrize("factor", [0.25, 0.5, 2.0, 4.0])
@pytest.mark.parametrize("launched", [1, 50])
def test_a_step_of_another_size_lies_between_the_bounds(factor: float, launched: int) -> None:
    found = step_scaling(record_of(4, operators=100 * launched))
    assert found is not None
    bounds = {times: (least, most) for times, least, most in found.by_samples}
    assert bounds[1.0] == pytest.approx((found.seconds, found.seconds))
    for operators in (100 * launched, int(100 * launched * factor)):  # a model may go through its samples one by one
        other = step_scaling(record_of(int(4 * factor), operators=operators))
        assert other is not None
        least, most = bounds[factor]
        assert least * 0.999 <= other.seconds <= most * 1.001
    if launched == 1:
        assert bounds[factor][1] / bounds[factor][0] < 1.3, "computing decides, and its FLOPs are known"


def test_the_optimizer_takes_its_time_once() -> None:
    found = step_scaling(record_of(4))
    assert found is not None
    assert found.fixed == pytest.approx(0.05, rel=0.01)
    assert 0 < found.waits < found.seconds


def test_nothing_is_said_where_it_can_not_be_told() -> None:
    record = record_of(4)
    for changed in ({"pipeline": (2, 4, 1)}, {"work": []}, {"steps": 0}):
        record.ranks = [msgspec.structs.replace(record.ranks[0], **changed)]
        assert step_scaling(record) is None
    rollout = record_of(4)
    rollout.ranks[0].work.append(msgspec.structs.replace(rollout.ranks[0].work[0], phase="generate"))
    assert step_scaling(rollout) is None
    uncounted = record_of(4)
    uncounted.ranks[0].work[:] = [msgspec.structs.replace(one, kernels=[]) for one in uncounted.ranks[0].work]
    assert step_scaling(uncounted) is None


def test_tokens_are_those_of_all_gpus_that_work_on_a_sample() -> None:
    plain = record_of(2)
    run = AsRun(tokens=(1024, 2048), samples=(2, 2), accumulation=(3, 3))

    def tokens(tensor_ranks: int, stages: int) -> float:
        rank = msgspec.structs.replace(
            plain.ranks[0], as_run=msgspec.structs.replace(run, tensor_ranks=tensor_ranks), pipeline=(stages, 1, 1)
        )
        record = msgspec.structs.replace(plain, ranks=[rank])
        found = with_step_time(rehearsal_report(record, "/work"), record).rehearsal
        assert found is not None
        assert found.tokens_per_second_per_gpu is not None
        return found.tokens_per_second_per_gpu * found.seconds_of_step

    assert tokens(1, 1) == pytest.approx(2048 * 2 * 3)
    assert tokens(4, 1) == pytest.approx(2048 * 2 * 3 / 4)
    assert tokens(2, 2) == pytest.approx(2048 * 2 * 3 / 4)
