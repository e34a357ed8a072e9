"""Bounds on the time of a step with another micro-batch, for the page's what-if without a rehearsal.

The FLOPs and bytes of each kernel of a step are known. With another micro-batch, the FLOPs of matrix products
scale with the samples; of the bytes, between none and all do, since some are weights. The number of kernels stays,
or scales with the samples if a model loops over them. Communication between ranks and the optimizer step stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gonogo.evidence.environment.hardware import PeakSpeed
from gonogo.evidence.rehearsal.record import ROLLOUT_PHASES, RehearsalRecord
from gonogo.evidence.rehearsal.work import PhaseWork
from gonogo.finding.rehearsal import StepScaling
from gonogo.trials.plan.rehearsed_step import accelerator_speed, last_whole_step, rank_step_seconds, slowest_rank
from gonogo.virtual.tracing.operator_time import LAUNCH_SECONDS, operator_seconds

FACTORS = (0.0625, 0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0)
"""Multiples of the micro-batch; between two of them, the lower bound is the smaller one's, the upper the
larger one's."""


def step_scaling(record: RehearsalRecord) -> StepScaling | None:
    """The bounds for a rehearsal's slowest rank; None if they can't be derived."""
    slowest, speed = slowest_rank(record), accelerator_speed(record)
    if slowest is None or speed is None:
        return None
    rank, seconds = slowest
    parts = last_whole_step(rank.work)
    stages, _, _ = rank.pipeline
    if stages > 1 or any(part.phase in ROLLOUT_PHASES for part in rank.work):
        return None
    if any(part.phase != "step" and not part.kernels for part in parts):
        return None

    def total_seconds(changed: Sequence[PhaseWork]) -> float:
        return rank_step_seconds(rank, record, speed, changed)

    once = [part for part in parts if part.phase == "step"]
    silent = [part if part.phase == "step" else _without_transfers(part) for part in parts]
    by_samples: list[tuple[float, float, float]] = []
    for factor in FACTORS:
        bounds = [
            total_seconds([_scale_phase(part, factor, others, speed) for part in parts]) for others in (1.0, factor)
        ]
        by_samples.append((factor, min(bounds), max(bounds)))
    return StepScaling(
        seconds=seconds,
        fixed=min(total_seconds(once), seconds),
        waits=max(seconds - total_seconds(silent), 0.0),
        by_samples=tuple(by_samples),
    )


def _without_transfers(part: PhaseWork) -> PhaseWork:
    return msgspec.structs.replace(part, collectives={}, to_host_bytes=0, from_host_bytes=0)


def _scale_phase(part: PhaseWork, factor: float, others: float, speed: PeakSpeed) -> PhaseWork:
    """The phase with the FLOPs of each product scaled by ``factor``, and bytes and kernel count by ``others``.

    The kernels are those of the micro-batches that were run; those that were only counted scale in proportion.
    """
    if part.phase == "step":
        return part
    long_before, short_before, _ = _kernel_seconds(part, 1.0, 1.0, speed)
    long_after, short_after, short_count = _kernel_seconds(part, factor, others, speed)
    run = sum(count for *_, count in part.kernels)
    share = (part.long_seconds + part.short_seconds) / (long_before + short_before or 1.0)
    return msgspec.structs.replace(
        part,
        long_seconds=long_after * share,
        short_seconds=short_after * share,
        short_operators=round(part.operators * short_count / max(run, 1)),
        operators=round(part.operators * others),
        library_calls=round(part.library_calls * others),
    )


def _kernel_seconds(part: PhaseWork, factor: float, moved: float, speed: PeakSpeed) -> tuple[float, float, int]:
    """Seconds in kernels that run longer than their launch takes, seconds in the others, and the count of those."""
    long, short, short_count = 0.0, 0.0, 0
    for kind, flops, nbytes, count in part.kernels:
        seconds = operator_seconds(round(flops * factor), round(nbytes * moved), speed, kind)
        if seconds > LAUNCH_SECONDS:
            long += seconds * count
        else:
            short += seconds * count
            short_count += count
    return long, short, short_count
