"""Measured at two depths, told for the full one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gonogo.evidence.rehearsal import CATEGORIES
from gonogo.plan.jobs import Measured, PhaseWork


class Work(msgspec.Struct, frozen=True):
    """What one rank does in a part of a step; see :class:`gonogo.plan.jobs.PhaseWork`."""

    seconds: float
    """On the accelerator, by the roofline."""
    flops: float
    to_host: float
    from_host: float
    sent: dict[str, float]
    """Bytes put into collectives, by operator."""


class Peak(msgspec.Struct, frozen=True):
    """Memory of one rank and its work of one step, in bytes."""

    allocated: float
    reserved: float
    host: float
    pinned: float
    by_category: dict[str, float]
    forward: Work
    """Of one micro-batch."""
    backward: Work
    """Of one micro-batch."""
    step: Work
    """What comes once in an optimizer step, however many micro-batches it has."""


def peak_of(measured: Measured, accumulation: int) -> Peak:
    """The figures of one rehearsal whose steps have ``accumulation`` micro-batches. The last step is the steady one."""
    record = measured.record
    device = next((one for one in record.devices if one.device == record.device), None)
    host = record.host
    assert device is not None
    assert host is not None
    last = max((work.step for work in measured.work if work.phase == "step"), default=0)

    def work(phase: str, times: int) -> Work:
        return _sum([one for one in measured.work if one.step == last and one.phase == phase], times)

    return Peak(
        allocated=device.peak_allocated_bytes,
        reserved=device.peak_reserved_bytes,
        host=host.peak_bytes,
        pinned=host.peak_pinned_bytes,
        by_category={name: float(device.by_category.get(name, 0)) for name in CATEGORIES},
        forward=work("forward", accumulation),
        backward=work("backward", accumulation),
        step=work("step", 1),
    )


def _sum(parts: Sequence[PhaseWork], times: int) -> Work:
    sent: dict[str, float] = {}
    for part in parts:
        for name, (_, nbytes) in part.collectives.items():
            sent[name] = sent.get(name, 0.0) + nbytes / times
    return Work(
        seconds=sum(part.seconds for part in parts) / times,
        flops=sum(part.flops for part in parts) / times,
        to_host=sum(part.to_host_bytes for part in parts) / times,
        from_host=sum(part.from_host_bytes for part in parts) / times,
        sent=sent,
    )


def extended(first: Peak, second: Peak, at: tuple[float, float], to: float) -> Peak:
    """The line through two sizes (depths, say), at a third. No figure falls below what was measured at the larger."""
    share = (to - at[0]) / (at[1] - at[0])

    def line(a: float, b: float) -> float:
        return max(b, a + (b - a) * share) if b >= a else b

    def lines(a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
        return {name: line(a.get(name, 0.0), value) for name, value in b.items()}

    def work(a: Work, b: Work) -> Work:
        return Work(
            seconds=line(a.seconds, b.seconds),
            flops=line(a.flops, b.flops),
            to_host=line(a.to_host, b.to_host),
            from_host=line(a.from_host, b.from_host),
            sent=lines(a.sent, b.sent),
        )

    return Peak(
        allocated=line(first.allocated, second.allocated),
        reserved=line(first.reserved, second.reserved),
        host=line(first.host, second.host),
        pinned=line(first.pinned, second.pinned),
        by_category=lines(first.by_category, second.by_category),
        forward=work(first.forward, second.forward),
        backward=work(first.backward, second.backward),
        step=work(first.step, second.step),
    )
