"""Seconds of a rehearsed step: what is waited for, what hides, what a pipeline adds."""

from __future__ import annotations

import msgspec
import pytest

from gonogo.evidence.environment.hardware import find_accelerator
from gonogo.evidence.rehearsal.work import PhaseWork, collective_key, parse_collective_key
from gonogo.trials.plan import rehearsed_step
from gonogo.trials.plan.rehearsed_step import last_whole_step, phase_seconds

SPEED = find_accelerator("H100-80G").speed
ALONE = (1, 1, 1)


def _part(phase: str = "forward", step: int = 1, seconds: float = 1.0, **more: object) -> PhaseWork:
    part = PhaseWork(step, phase, 1, 1, seconds, 0.0, 0, 0, 0)
    return msgspec.structs.replace(part, **more)


@pytest.mark.parametrize(
    ("key", "read"),
    [
        (collective_key("allreduce_", 8), ("allreduce_", 8, False, False)),
        (collective_key("send", 2, spans_nodes=True, is_async=True), ("send", 2, True, True)),
        ("allreduce_", ("allreduce_", None, False, False)),
    ],
)
def test_a_collectives_name_says_its_group(key: str, read: tuple[object, ...]) -> None:
    assert parse_collective_key(key) == read


def test_only_a_step_that_was_run_whole_is_timed() -> None:
    whole = [_part("forward", 1), _part("backward", 1), _part("step", 1)]
    assert last_whole_step([*whole, _part("step", 2), _part("forward", 2), _part("evaluate", 1)]) == whole
    assert not last_whole_step([_part("forward", 0), _part("backward", 0)])


def test_a_small_model_waits_for_python() -> None:
    assert SPEED is not None
    busy = phase_seconds([_part(seconds=1e-4, operators=1000)], SPEED, ALONE)
    assert busy == pytest.approx(1000 * rehearsed_step.OPERATOR_SECONDS, rel=0.01)
    hooked = phase_seconds([_part(seconds=1e-4, operators=1000)], SPEED, ALONE, is_zero3=True)
    assert hooked > 2 * busy


def test_what_is_waited_for_counts_whole_and_across_nodes_more() -> None:
    assert SPEED is not None
    sent = 10 << 30

    def taken(key: str) -> float:
        return phase_seconds([_part(collectives={key: (1, sent)})], SPEED, ALONE)

    alone, waits = taken(collective_key("allreduce_", 1)), taken(collective_key("allreduce_", 8))
    beside = taken(collective_key("allreduce_", 8, is_async=True))
    far = taken(collective_key("allreduce_", 8, spans_nodes=True))
    assert alone == pytest.approx(1.0, rel=0.01)
    assert alone < beside < waits < far


def test_a_pipeline_waits_at_its_ends_and_less_with_more_parts() -> None:
    assert SPEED is not None
    parts = [_part("forward"), _part("backward", seconds=2.0), _part("step", seconds=0.5)]
    assert phase_seconds(parts, SPEED, (4, 4, 1)) == pytest.approx(3.0 * (1 + 3 / 4) + 0.5)
    assert phase_seconds(parts, SPEED, (4, 4, 3)) == pytest.approx(3.0 * (1 + 3 / 12) + 0.5)
