"""Extrapolates measurements at two depths to the full depth."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gonogo.evidence.rehearsal.work import PhaseWork
from gonogo.virtual.measuring.jobs import Measured, PhasePeak
from gonogo.virtual.tracing.operator_time import LAUNCH_SECONDS, OPERATOR_SECONDS

_SAMPLE_PHASES = {"forward", "backward", "score"}
"""Phases in which activations and temporary tensors grow with the micro-batch."""
_BATCH_DEPENDENT_CATEGORIES = ("activations", "temporary")


class Work(msgspec.Struct, frozen=True):
    """The work of one rank in a part of a step; see :class:`gonogo.virtual.measuring.jobs.PhaseWork`."""

    long_seconds: float
    short_seconds: float
    short_operators: float
    flops: float
    to_host: float
    from_host: float
    sent: dict[str, float]
    """Bytes sent by collectives, by operator."""
    operators: float = 0.0

    @property
    def seconds(self) -> float:
        """Roofline time, or the time to launch all operators if longer. Short operators are launch-bound."""
        computing = self.long_seconds + max(self.short_seconds, self.short_operators * LAUNCH_SECONDS)
        return max(computing, self.operators * OPERATOR_SECONDS)

    def with_samples(self, ratio: float) -> Work:
        """The same operators on ``ratio`` times the samples."""
        longer, shorter = self.long_seconds * ratio, self.short_seconds * ratio
        return msgspec.structs.replace(self, long_seconds=longer, short_seconds=shorter)


NOTHING = Work(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, {})


class Peak(msgspec.Struct, frozen=True):
    """The memory of one rank, in bytes, and its work in one step."""

    phases: dict[str, PhasePeak]
    reserved: float
    host: float
    pinned: float
    forward: Work
    """Per micro-batch."""
    backward: Work
    """Per micro-batch."""
    step: Work
    """Once per optimizer step, regardless of accumulation."""
    score: Work = NOTHING
    """Per micro-batch: generation, rewards and scoring before the training."""
    sync: Work = NOTHING
    """Once per optimizer step: sending the weights to the rollout engine."""

    @property
    def highest(self) -> PhasePeak:
        """The phase with the most allocated memory."""
        return max(self.phases.values(), key=lambda phase: phase.allocated)

    @property
    def allocated(self) -> float:
        """The maximum of allocated memory over all phases."""
        return self.highest.allocated

    @property
    def sample_bytes(self) -> float:
        """The maximum, over all phases, of the memory that grows with the micro-batch."""
        return max(
            (
                sum(phase.by_category.get(category, 0.0) for category in _BATCH_DEPENDENT_CATEGORIES)
                for name, phase in self.phases.items()
                if name in _SAMPLE_PHASES
            ),
            default=0.0,
        )

    def with_samples(self, ratio: float) -> Peak:
        """Scale the micro-batch by ``ratio``: activations and compute grow with it."""
        phases = {
            name: _scale_phase(phase, ratio) if name in _SAMPLE_PHASES else phase for name, phase in self.phases.items()
        }
        allocated = max(phase.allocated for phase in phases.values())
        return msgspec.structs.replace(
            self,
            phases=phases,
            reserved=self.reserved * allocated / self.allocated if self.allocated else self.reserved,
            forward=self.forward.with_samples(ratio),
            backward=self.backward.with_samples(ratio),
            score=self.score.with_samples(ratio),
        )


def _scale_phase(phase: PhasePeak, ratio: float) -> PhasePeak:
    parts = {
        name: size * (ratio if name in _BATCH_DEPENDENT_CATEGORIES else 1.0) for name, size in phase.by_category.items()
    }
    grown = sum(parts.values()) - sum(phase.by_category.values())
    return PhasePeak(phase.allocated + grown, parts)


def measured_peak(measurement: Measured, accumulation: int) -> Peak:
    """The figures of a rehearsal with ``accumulation`` micro-batches per step; work is that of the last step."""
    record = measurement.record
    device = next((one for one in record.devices if one.device == record.device), None)
    host = record.host
    assert device is not None
    assert host is not None
    steps = [{work.step for work in measurement.work if work.phase == phase} for phase in ("backward", "step")]
    last = max(steps[0] & steps[1], default=0)

    def work_of_phases(phases: str | tuple[str, ...], repetitions: int) -> Work:
        named = (phases,) if isinstance(phases, str) else phases
        return sum_work([one for one in measurement.work if one.step == last and one.phase in named], repetitions)

    return Peak(
        phases=measurement.peaks,
        reserved=device.peak_reserved_bytes,
        host=host.peak_bytes,
        pinned=host.peak_pinned_bytes,
        forward=work_of_phases("forward", accumulation),
        backward=work_of_phases("backward", accumulation),
        step=work_of_phases("step", 1),
        score=work_of_phases(("generate", "reward", "score"), accumulation),
        sync=work_of_phases("sync", 1),
    )


def sum_work(parts: Sequence[PhaseWork], repetitions: int = 1) -> Work:
    """The sum of all parts, divided by the number of times they were run."""
    sent: dict[str, float] = {}
    for part in parts:
        for name, (_, nbytes) in part.collectives.items():
            sent[name] = sent.get(name, 0.0) + nbytes / repetitions
    return Work(
        long_seconds=sum(part.long_seconds for part in parts) / repetitions,
        short_seconds=sum(part.short_seconds for part in parts) / repetitions,
        short_operators=sum(part.short_operators for part in parts) / repetitions,
        flops=sum(part.flops for part in parts) / repetitions,
        to_host=sum(part.to_host_bytes for part in parts) / repetitions,
        from_host=sum(part.from_host_bytes for part in parts) / repetitions,
        sent=sent,
        operators=sum(part.operators for part in parts) / repetitions,
    )


def extrapolate(
    first: Peak,
    second: Peak,
    sizes: tuple[float, float],
    target_size: float,
    *,
    same_batch: bool = True,
    unused_scales_with_depth: bool = True,
) -> Peak:
    """Extrapolate linearly from two sizes (such as depths) to a third.

    Beyond the second size, no figure falls below its value there.

    Reserved memory is not linear, because fragmentation varies. With the same batch, the ratio of reserved to
    allocated memory is taken to be at least that of either measurement. Without ``unused_scales_with_depth`` (as for
    logits, which have the same size at any depth), the unused bytes are at least those of either measurement instead.
    """
    share = (target_size - sizes[0]) / (sizes[1] - sizes[0])

    def interpolate(a: float, b: float) -> float:
        estimate = max(0.0, a + (b - a) * share)
        return estimate if share < 1 else max(b, estimate)

    def interpolate_each(a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
        return {name: interpolate(a.get(name, 0.0), value) for name, value in b.items()}

    def interpolate_work(a: Work, b: Work) -> Work:
        return Work(
            long_seconds=interpolate(a.long_seconds, b.long_seconds),
            short_seconds=interpolate(a.short_seconds, b.short_seconds),
            short_operators=interpolate(a.short_operators, b.short_operators),
            flops=interpolate(a.flops, b.flops),
            to_host=interpolate(a.to_host, b.to_host),
            from_host=interpolate(a.from_host, b.from_host),
            sent=interpolate_each(a.sent, b.sent),
            operators=interpolate(a.operators, b.operators),
        )

    phases = {}
    for name, phase in second.phases.items():
        before = first.phases.get(name, phase)
        phases[name] = PhasePeak(
            interpolate(before.allocated, phase.allocated), interpolate_each(before.by_category, phase.by_category)
        )
    allocated = max(phase.allocated for phase in phases.values())
    over = max(peak.reserved / peak.allocated if peak.allocated else 1.0 for peak in (first, second))
    unused = max(peak.reserved - peak.allocated for peak in (first, second))
    least = allocated * (over if same_batch and unused_scales_with_depth else 1.0)
    if same_batch and not unused_scales_with_depth:
        least = allocated + unused
    return Peak(
        phases=phases,
        reserved=max(interpolate(first.reserved, second.reserved), least),
        host=interpolate(first.host, second.host),
        pinned=interpolate(first.pinned, second.pinned),
        forward=interpolate_work(first.forward, second.forward),
        backward=interpolate_work(first.backward, second.backward),
        step=interpolate_work(first.step, second.step),
        score=interpolate_work(first.score, second.score),
        sync=interpolate_work(first.sync, second.sync),
    )
