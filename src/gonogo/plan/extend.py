"""Measured at two depths, told for the full one."""

from __future__ import annotations

import msgspec

from gonogo.evidence.rehearsal import CATEGORIES
from gonogo.plan.jobs import Measured


class Peak(msgspec.Struct, frozen=True):
    """Memory of one rank and its work of one step. Bytes and seconds; see :class:`gonogo.plan.jobs.PhaseWork`."""

    allocated: float
    reserved: float
    host: float
    pinned: float
    by_category: dict[str, float]
    forward_backward_seconds: float
    """Of one micro-batch, on the accelerator."""
    step_seconds: float
    """Of the optimizer step, on the accelerator."""
    flops: float
    """Of one micro-batch."""
    to_host: float
    """Bytes of one micro-batch, with its share of the step's."""
    from_host: float
    sent: dict[str, float]
    """Bytes put into collectives, by operator, of one step with one micro-batch."""


def peak_of(measured: Measured) -> Peak:
    """The figures of one rehearsal. The last whole step is the steady one."""
    record = measured.record
    device = next((one for one in record.devices if one.device == record.device), None)
    host = record.host
    assert device is not None
    assert host is not None
    last = max((work.step for work in measured.work if work.phase == "step"), default=0)
    phases = [work for work in measured.work if work.step == last]
    passes = [work for work in phases if work.phase in ("forward", "backward")]
    steps = [work for work in phases if work.phase == "step"]
    sent: dict[str, float] = {}
    for work in [*passes, *steps]:
        for name, (_, nbytes) in work.collectives.items():
            sent[name] = sent.get(name, 0.0) + nbytes
    return Peak(
        allocated=device.peak_allocated_bytes,
        reserved=device.peak_reserved_bytes,
        host=host.peak_bytes,
        pinned=host.peak_pinned_bytes,
        by_category={name: float(device.by_category.get(name, 0)) for name in CATEGORIES},
        forward_backward_seconds=sum(work.seconds for work in passes),
        step_seconds=sum(work.seconds for work in steps),
        flops=sum(work.flops for work in passes),
        to_host=sum(work.to_host_bytes for work in [*passes, *steps]),
        from_host=sum(work.from_host_bytes for work in [*passes, *steps]),
        sent=sent,
    )


def extended(first: Peak, second: Peak, at: tuple[int, int], full: int) -> Peak:
    """The line through two depths, at the full one. No figure falls below what was measured at the deeper one."""
    share = (full - at[0]) / (at[1] - at[0])

    def line(a: float, b: float) -> float:
        return max(b, a + (b - a) * share) if b >= a else b

    return Peak(
        by_category={name: line(first.by_category[name], second.by_category[name]) for name in first.by_category},
        sent={name: line(first.sent.get(name, 0.0), value) for name, value in second.sent.items()},
        **{
            name: line(getattr(first, name), getattr(second, name))
            for name in Peak.__struct_fields__
            if name not in ("by_category", "sent")
        },
    )
