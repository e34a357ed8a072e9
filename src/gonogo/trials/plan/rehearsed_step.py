"""Estimates the step time of a rehearsed program from what its ranks computed, moved and sent in the last full step.

Kernel times come from :mod:`gonogo.virtual.tracing.operator_time`; launching them takes CPU time as well, and a phase
takes little more than the longer of the two: small models are bound by Python. Blocking collectives are added on top;
of those that overlap with compute, the fraction :data:`EXPOSED_COMMUNICATION_SHARE`. A pipeline adds the bubble of
its schedule. The constants are fitted to a part of the published figures (``benchmarks/step_time.py``), and validated
on the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from gonogo.evidence.environment.hardware import PeakSpeed, find_accelerator
from gonogo.evidence.rehearsal.failures import offload_device
from gonogo.evidence.rehearsal.record import RankRecord, RehearsalRecord
from gonogo.evidence.rehearsal.work import PhaseWork, parse_collective_key
from gonogo.finding import UserError
from gonogo.trials.plan.roofline import NETWORK_BYTES_PER_SECOND, collective_seconds, step_time
from gonogo.virtual.tracing.operator_time import LAUNCH_SECONDS, OPERATOR_SECONDS

LIBRARY_CALL_SECONDS = 110e-6
"""Extra time for a call into a library with its own kernels, such as Transformer Engine."""
CALL_SECONDS = 5e-6
"""CPU time for launching a collective."""
FETCH_SECONDS = 400e-6
"""The same under ZeRO-3, which gathers and releases a module's parameters in Python."""
HOOKED_OPERATOR_SECONDS = 65e-6
"""CPU time per operator under ZeRO-3, which runs hooks before and after each module."""
COLLECTIVE_SECONDS = 65e-6
"""The minimum time of a collective on the accelerators, whatever its size."""
EXPOSED_COMMUNICATION_SHARE = 0.5
"""The fraction of asynchronous collectives' time that is not hidden by compute."""

OVERLAP_EXPONENT = 1.9
"""Overlap of launching and computing: the larger, the closer the total is to the longer of the two.

Operators that read values back to the host make one wait for the other.
"""

STEP_PHASES = ("forward", "backward", "step")


def seconds_of_step(record: RehearsalRecord) -> float | None:
    """Seconds of the slowest rank's last full step; None if there was no full step, or no work was counted."""
    slowest = slowest_rank(record)
    return slowest[1] if slowest is not None else None


def slowest_rank(record: RehearsalRecord) -> tuple[RankRecord, float] | None:
    """The rank whose last whole step took the longest, with its seconds."""
    speed = accelerator_speed(record)
    if speed is None:
        return None
    ranks = [(rank, last_whole_step(rank.work)) for rank in record.ranks if rank.work and rank.steps]
    found = [(rank, rank_step_seconds(rank, record, speed, parts)) for rank, parts in ranks if parts]
    return max(((rank, seconds) for rank, seconds in found if seconds), key=lambda one: one[1], default=None)


def accelerator_speed(record: RehearsalRecord) -> PeakSpeed | None:
    """How fast the accelerator of a rehearsal is; None where that is not known."""
    try:
        return find_accelerator(record.accelerator.name).speed
    except UserError:
        return None


def last_whole_step(phase_works: Sequence[PhaseWork]) -> list[PhaseWork]:
    """The parts of the last step that has both backward and optimizer step."""
    steps = [{part.step for part in phase_works if part.phase == phase} for phase in ("backward", "step")]
    last = max(steps[0] & steps[1], default=None)
    return [part for part in phase_works if part.step == last and part.phase in STEP_PHASES]


def phase_seconds(
    parts: Sequence[PhaseWork],
    speed: PeakSpeed,
    pipeline_shape: tuple[int, int, int],
    *,
    is_zero3: bool = False,
    network_bytes: float = NETWORK_BYTES_PER_SECOND,
) -> float:
    """Seconds that the parts of one step take.

    ``pipeline_shape``: stages, micro-batches, model chunks per rank; ``is_zero3``: whether ZeRO-3 is used;
    ``network_bytes``: bytes/s per accelerator between nodes.
    """
    call_seconds = FETCH_SECONDS if is_zero3 else CALL_SECONDS
    operator_seconds = HOOKED_OPERATOR_SECONDS if is_zero3 else OPERATOR_SECONDS
    stages, micro_batches, chunks = pipeline_shape
    waiting = (stages - 1) / max(micro_batches * chunks, 1)
    network_bytes = min(speed.link_bytes, network_bytes)
    total = 0.0
    for part in parts:
        computing = part.long_seconds + max(part.short_seconds, part.short_operators * LAUNCH_SECONDS)
        launching = part.operators * operator_seconds + part.library_calls * LIBRARY_CALL_SECONDS
        for key, (calls, sent) in part.collectives.items():
            operator, ranks, spans_nodes, goes_on = parse_collective_key(key)
            launching += calls * (CALL_SECONDS if ranks == 1 else call_seconds)
            taken = collective_seconds(operator, sent, ranks or 1, network_bytes if spans_nodes else speed.link_bytes)
            if ranks and ranks > 1:
                taken += calls * COLLECTIVE_SECONDS
            computing += taken * (EXPOSED_COMMUNICATION_SHARE if goes_on else 1.0)
        both = (computing**OVERLAP_EXPONENT + launching**OVERLAP_EXPONENT) ** (1 / OVERLAP_EXPONENT)
        total += both * (1.0 if part.phase == "step" else 1.0 + waiting)
    return total


def rank_step_seconds(rank: RankRecord, record: RehearsalRecord, speed: PeakSpeed, parts: Sequence[PhaseWork]) -> float:
    """Seconds of a step of a rank that has these parts."""
    device = offload_device(rank.deepspeed_config, "offload_optimizer")
    share = rank.parameter_count / record.world_size if device is not None else 0.0
    return step_time(
        compute=phase_seconds(parts, speed, rank.pipeline, is_zero3=rank.as_run is not None and rank.as_run.stage == 3),
        communication=0.0,
        to_host_bytes=sum(part.to_host_bytes for part in parts),
        from_host_bytes=sum(part.from_host_bytes for part in parts),
        host_parameters=share,
        nvme_parameters=share if device == "nvme" else 0.0,
        ranks_per_node=record.ranks_per_node,
        nvme_drive_count=1,
        speed=speed,
    ).total
