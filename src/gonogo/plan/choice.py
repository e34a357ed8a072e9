"""A strategy with what it takes, how long a step is, and how that is known."""

from __future__ import annotations

from typing import Literal

import msgspec

from gonogo.plan import closed_form
from gonogo.plan.extend import Peak
from gonogo.plan.jobs import Facts
from gonogo.plan.machine_room import Room, room
from gonogo.plan.request import PlanRequest
from gonogo.plan.roofline import NETWORK_BYTES, StepTime, collective_seconds, step_time
from gonogo.plan.strategy import Strategy

Source = Literal["rehearsed", "extended", "formula"]
BANDS: dict[Source, float] = {"rehearsed": 0.03, "extended": 0.06, "formula": 0.35}
"""How far the accelerator's peak may be off, as a share: see ``benchmarks/memory.py``."""
_FRAGMENTED = 1.15
"""Reserved memory over allocated, where only a formula tells the latter."""
_GROWS_WITH_BATCH = ("activations", "temporary")


class Choice(msgspec.Struct, frozen=True):
    """One strategy, judged. Bytes are of one rank."""

    strategy: Strategy
    source: Source
    allocated: float
    reserved: float
    by_category: dict[str, float]
    host: float
    pinned: float
    nvme: float
    time: StepTime
    tokens_per_second: float
    """Of one accelerator."""
    room: Room

    @property
    def band(self) -> float:
        """How far ``reserved`` may be off, as a share."""
        return BANDS[self.source]


def by_formula(request: PlanRequest, facts: Facts, strategy: Strategy) -> Choice:
    """What the closed form says of a strategy."""
    estimate = closed_form.memory(facts, strategy, world_size=request.world_size, seq_len=request.seq_len)
    speed = request.machine.accelerator.speed
    assert speed is not None
    taken = closed_form.time(
        facts, strategy, world_size=request.world_size, ranks_per_node=request.machine.count,
        seq_len=request.seq_len, speed=speed, bandwidth=bandwidth(request), nvme_drives=request.nvme_drives,
    )  # fmt: skip
    categories = {"parameters": estimate.states, "communication": estimate.buffers, "activations": estimate.activations}
    return _choice(
        request, strategy, "formula", estimate.allocated, estimate.allocated * _FRAGMENTED, categories,
        estimate.host, estimate.host, estimate.nvme, taken,
    )  # fmt: skip


def by_peak(request: PlanRequest, facts: Facts, strategy: Strategy, at: Strategy, peak: Peak, source: Source) -> Choice:
    """What a rehearsal of ``at`` says of a strategy that differs from it in micro-batch and accumulation at most."""
    ratio = strategy.micro_batch / at.micro_batch
    categories = {
        name: nbytes * (ratio if name in _GROWS_WITH_BATCH else 1.0) for name, nbytes in peak.by_category.items()
    }
    allocated = peak.allocated + sum(categories.values()) - sum(peak.by_category.values())
    reserved = peak.reserved * (allocated / peak.allocated) if peak.allocated else peak.reserved
    speed = request.machine.accelerator.speed
    assert speed is not None
    family = strategy.family
    share = facts.trainable / (request.world_size if family.zero else 1)
    offloaded = share if family.optimizer != "gpu" else 0.0
    link = bandwidth(request)
    sent = sum(collective_seconds(name, int(nbytes), request.world_size, link) for name, nbytes in peak.sent.items())
    times = strategy.accumulation
    taken = step_time(
        compute=peak.forward_backward_seconds * ratio * times + peak.step_seconds,
        communication=sent * times / max(at.accumulation, 1),
        to_host_bytes=peak.to_host * times,
        from_host_bytes=peak.from_host * times,
        host_parameters=offloaded,
        nvme_parameters=offloaded if family.optimizer == "nvme" else 0.0,
        ranks_per_node=request.machine.count,
        nvme_drives=request.nvme_drives,
        speed=speed,
    )
    formula = closed_form.memory(facts, strategy, world_size=request.world_size, seq_len=request.seq_len)
    return _choice(
        request, strategy, source, allocated, reserved, categories, peak.host, peak.pinned, formula.nvme, taken
    )


def bandwidth(request: PlanRequest) -> float:
    """Bytes/s of a rank's slowest link that a collective over all ranks uses."""
    speed = request.machine.accelerator.speed
    assert speed is not None
    if request.machine.nodes == 1:
        return speed.link_bytes
    return min(speed.link_bytes, request.network_bytes or NETWORK_BYTES)


def _choice(
    request: PlanRequest, strategy: Strategy, source: Source, allocated: float, reserved: float,
    by_category: dict[str, float], host: float, pinned: float, nvme: float, taken: StepTime,
) -> Choice:  # fmt: skip
    tokens = strategy.micro_batch * strategy.accumulation * request.seq_len
    left = room(
        request.machine, reserved=reserved, host_of_rank=host, nvme_of_rank=nvme, nvme_bytes=request.nvme_bytes,
        band=BANDS[source] if source != "formula" else 0.0,
    )  # fmt: skip
    return Choice(
        strategy=strategy, source=source, allocated=allocated, reserved=reserved, by_category=by_category, host=host,
        pinned=pinned, nvme=nvme, time=taken, tokens_per_second=tokens / taken.total if taken.total else 0.0, room=left,
    )  # fmt: skip
