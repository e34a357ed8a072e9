"""A strategy with its memory, its step time, and the source of these figures."""

from __future__ import annotations

from typing import Literal

import msgspec

from gonogo.evidence.rehearsal.work import parse_collective_key
from gonogo.trials.plan import closed_form
from gonogo.trials.plan.closed_form import Calibration, Estimate
from gonogo.trials.plan.extrapolation import Peak, Work
from gonogo.trials.plan.fits import Headroom, headroom
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.roofline import NETWORK_BYTES_PER_SECOND, StepTime, collective_seconds, step_time
from gonogo.trials.plan.sizing import engine
from gonogo.trials.plan.strategy import Strategy
from gonogo.trials.plan.task.kinds import ON_POLICY_SHARE
from gonogo.trials.plan.task.rollout import with_engine
from gonogo.virtual.measuring.jobs import ModelFacts

Source = Literal["rehearsed", "extended", "formula"]
UNCERTAINTY_BY_SOURCE: dict[Source, float] = {"rehearsed": 0.03, "extended": 0.12, "formula": 0.35}
"""The relative error of the accelerator's peak, by source: see ``benchmarks/memory.py``."""
_FRAGMENTATION_FACTOR = 1.15
"""Reserved over allocated memory, if the latter is known only by formula."""


class Choice(msgspec.Struct, frozen=True):
    """One strategy with its estimate. Bytes are per rank."""

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
    """Per accelerator."""
    room: Headroom

    @property
    def band(self) -> float:
        """The relative error of ``reserved``."""
        return UNCERTAINTY_BY_SOURCE[self.source]

    def may_fit(self, capacity_bytes: float) -> bool:
        """Whether a rehearsal at full depth might show that it fits into ``capacity_bytes`` bytes.

        The caching allocator releases unused segments before it fails, so what it reserves while there is room is
        more than what it needs. If the figures come from a formula, the uncertainty is even larger.
        """
        if self.source == "rehearsed" or not self.room.others_fit:
            return self.room.fits
        share = 1 - self.band if self.source == "formula" else 1.0
        return self.allocated * share <= capacity_bytes

    def surely_too_large(self, capacity_bytes: float) -> bool:
        """Whether it does not fit even at the lower end of the error band."""
        return not self.room.fits and not self.may_fit(capacity_bytes)


def estimate_by_formula(request: PlanRequest, facts: ModelFacts, strategy: Strategy, known: Calibration) -> Choice:
    """Estimate a strategy by the closed-form model."""
    estimate = closed_form.estimate_memory(
        facts, strategy, world_size=request.world_size, seq_len=request.tokens_per_sample, known=known,
        ranks_per_node=request.machine.count,
    )  # fmt: skip
    estimate = _with_auxiliary_models(request, facts, strategy, estimate)
    speed = request.machine.accelerator.speed
    assert speed is not None
    taken = closed_form.estimate_step_time(
        facts, strategy, world_size=request.world_size, ranks_per_node=request.machine.count, speed=speed,
        seq_len=request.tokens_per_sample, bandwidth=slowest_link_bandwidth(request),
        nvme_drives=request.nvme_drives, known=known,
        generation=engine.rollout_seconds(request, facts, strategy),
    )  # fmt: skip
    return _build_choice(
        request, facts, strategy, "formula", estimate.allocated, estimate.allocated * _FRAGMENTATION_FACTOR,
        estimate.by_category, estimate.host, estimate.host, estimate.nvme, taken, estimate.by_category["parameters"],
    )  # fmt: skip


def _with_auxiliary_models(request: PlanRequest, facts: ModelFacts, strategy: Strategy, estimate: Estimate) -> Estimate:
    """Add a reference model, a reward model or teacher, and an engine, at the phase with the highest total."""
    of_each = request.world_size if strategy.family.zero == 3 else 1
    others = 2.0 * facts.beside_parameters + (facts.weight_bytes if strategy.reference == "model" else 0.0)
    held = estimate.by_category
    held = held | {"parameters": held["parameters"] + others / of_each}
    beside = engine.colocated_engine_memory(request, facts, strategy)
    if beside is None:
        return msgspec.structs.replace(estimate, by_category=held)
    training = held | {"rollout": beside.bytes_in_phase("backward")}
    generating = held | {"rollout": beside.bytes_in_phase("generate"), "activations": 0.0}
    return msgspec.structs.replace(estimate, by_category=max(training, generating, key=lambda one: sum(one.values())))


def estimate_from_peak(
    request: PlanRequest, facts: ModelFacts, strategy: Strategy, at: Strategy, peak: Peak, source: Source
) -> Choice:
    """Derive a strategy's figures from a rehearsal of ``at``, with another micro-batch, accumulation or engine."""
    peak = peak.with_samples(strategy.micro_batch / at.micro_batch)
    beside = engine.colocated_engine_memory(request, facts, strategy)
    if beside is not None and source != "rehearsed":
        peak = with_engine(peak, beside)
    speed = request.machine.accelerator.speed
    assert speed is not None
    family = strategy.family
    share = facts.trainable / (request.world_size if family.zero else 1)
    offloaded = share if family.optimizer != "gpu" else 0.0
    times = strategy.accumulation
    passes, generation = [peak.forward, peak.backward], engine.rollout_seconds(request, facts, strategy)
    if request.task is not None and request.task.kind.generates:
        generation = ON_POLICY_SHARE * times * _seconds_without_overlap(peak.score, request)
    else:
        passes.append(peak.score)
    generation += _seconds_without_overlap(peak.sync, request)
    taken = step_time(
        compute=sum(part.seconds for part in passes) * times + peak.step.seconds,
        communication=sum(_communication_seconds(part, request) for part in passes) * times
        + _communication_seconds(peak.step, request),
        to_host_bytes=sum(part.to_host for part in passes) * times + peak.step.to_host,
        from_host_bytes=sum(part.from_host for part in passes) * times + peak.step.from_host,
        host_parameters=offloaded,
        nvme_parameters=offloaded if family.optimizer == "nvme" else 0.0,
        ranks_per_node=request.machine.count,
        nvme_drive_count=request.nvme_drives,
        speed=speed,
        generation_seconds=generation,
    )
    formula = closed_form.estimate_memory(
        facts, strategy, world_size=request.world_size, seq_len=request.tokens_per_sample
    )
    before = peak.phases.get("load")
    host = peak.host
    if family.fsdp and facts.first_rank_reads:  # the rehearsed rank alone loads the weights into host memory
        states = sum(closed_form.fsdp_state_bytes(facts, family.sharding_ranks(request.world_size)).values())
        others = (request.machine.count - 1) * (states if family.parameters == "cpu" else 0.0)
        host = (peak.host + others) / request.machine.count
    return _build_choice(
        request, facts, strategy, source, peak.allocated, peak.reserved, peak.highest.by_category, host,
        peak.pinned, formula.nvme, taken, before.allocated if before is not None else 0.0,
    )  # fmt: skip


def _seconds_without_overlap(work: Work, request: PlanRequest) -> float:
    """Seconds of work that does not overlap with anything else."""
    return max(work.seconds, _communication_seconds(work, request))


def slowest_link_bandwidth(request: PlanRequest) -> float:
    """Bytes/s of the slowest link of a rank that a collective over all ranks uses."""
    speed = request.machine.accelerator.speed
    assert speed is not None
    if request.machine.nodes == 1:
        return speed.link_bytes
    return min(speed.link_bytes, request.network_bytes_per_second or NETWORK_BYTES_PER_SECOND)


def usable_gpu_memory(request: PlanRequest) -> int:
    """Bytes of an accelerator that the caching allocator may reserve."""
    return request.machine.accelerator.total_bytes - request.machine.accelerator.allowance_bytes


def _communication_seconds(work: Work, request: PlanRequest) -> float:
    """Seconds that the collectives of a part take. Those of ranks of one node don't use the network."""
    speed = request.machine.accelerator.speed
    assert speed is not None
    seconds = 0.0
    for key, nbytes in work.sent.items():
        _, members, spans_nodes, _ = parse_collective_key(key)
        within = members is not None and members <= request.machine.count and not spans_nodes
        link = speed.link_bytes if within else slowest_link_bandwidth(request)
        seconds += collective_seconds(key, int(nbytes), request.world_size, link)
    return seconds


def _build_choice(
    request: PlanRequest, facts: ModelFacts, strategy: Strategy, source: Source, allocated: float, reserved: float,
    by_category: dict[str, float], host: float, pinned: float, nvme: float, taken: StepTime, trainer_bytes: float,
) -> Choice:  # fmt: skip
    """``trainer_bytes``: GPU memory that the trainer holds before a rollout engine starts."""
    tokens: float = strategy.micro_batch * strategy.accumulation * request.tokens_per_sample
    tokens /= strategy.family.sample_ranks
    tokens *= request.world_size / (request.world_size + strategy.rollout.gpus)  # the server's GPUs don't train
    beside = engine.colocated_engine_memory(request, facts, strategy)
    left = headroom(
        request.machine, reserved=reserved, host_of_rank=host, nvme_of_rank=nvme, nvme_bytes=request.nvme_bytes,
        band=UNCERTAINTY_BY_SOURCE[source], unsure=beside.uncertain_bytes if beside is not None else 0.0,
        engine=engine.start_margin(request, facts, strategy, trainer_bytes),
    )  # fmt: skip
    return Choice(
        strategy=strategy, source=source, allocated=allocated, reserved=reserved, by_category=by_category, host=host,
        pinned=pinned, nvme=nvme, time=taken, tokens_per_second=tokens / taken.total if taken.total else 0.0, room=left,
    )  # fmt: skip
