"""A meter that rehearses nothing: memory and work by simple laws, so that the right answer is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plan_facts import SEVEN_BILLION

from gonogo.evidence.rehearsal.record import DeviceMemory, HostMemory, RankRecord
from gonogo.trials.plan.measure import Measurement, NotMeasured
from gonogo.trials.plan.strategy import BUCKET_ELEMENTS
from gonogo.virtual.measuring.jobs import Measured, ModelFacts, PhasePeak, PhaseWork

GIB = 1 << 30
DEPTH = 28


def allocated(cell: Measurement, buckets: float = 0.0) -> float:
    """Bytes at the peak of backward: states of each layer, divided where the strategy does, and activations.

    ``buckets``: GiB of DeepSpeed's usual ones, under ZeRO-2.
    """
    family, depth = cell.strategy.family, cell.depth or DEPTH
    states = 2.0 if family.parameters == "gpu" else 0.0
    ranks = family.sharding_ranks(cell.world_size)
    states = states / ranks if family.zero == 3 else states
    states += 16.0 / ranks if family.optimizer == "gpu" else 0.0
    of_layer = 0.02 if cell.strategy.checkpointing else 0.3
    activations = (of_layer * depth + 1.0) / family.context
    of_buckets = buckets * family.bucket / BUCKET_ELEMENTS if family.zero == 2 else 0.0
    return (of_buckets + states * 0.25 * depth + activations * cell.strategy.micro_batch * cell.seq_len / 4096) * GIB


class FakeMeter:
    """Has the face of :class:`gonogo.trials.plan.measure.Meter`. ``broken``: ZeRO's stages whose rehearsals fail."""

    def __init__(self, *, broken: frozenset[int] = frozenset(), reserve: float = 1.05, buckets: float = 0.0) -> None:
        self.config = {"model_type": "qwen2", "num_hidden_layers": DEPTH, "max_position_embeddings": 131072}
        self.cells: list[Measurement] = []
        self.rehearsed = self.reused = 0
        self._broken = broken
        self._reserve = reserve
        self._buckets = buckets

    def facts(self) -> ModelFacts:
        return SEVEN_BILLION

    def measure(self, cells: Sequence[Measurement]) -> list[Measured | NotMeasured]:
        self.cells += cells
        self.rehearsed += len(cells)
        return [self._measured(cell) for cell in cells]

    def _measured(self, cell: Measurement) -> Measured | NotMeasured:
        if cell.strategy.family.zero in self._broken:
            return NotMeasured("status 70: AssertionError")
        peak = allocated(cell, self._buckets)
        activations = {"activations": peak - allocated(_without_samples(cell), self._buckets)}
        device: Any = DeviceMemory(
            device="cuda:0", peak_allocated_bytes=int(peak), peak_reserved_bytes=int(peak * self._reserve),
            allowance_bytes=0, total_bytes=80 * GIB, peak_phase="backward", peak_step=1, by_category={},
        )  # fmt: skip
        host = HostMemory(GIB, GIB, "init", 0, {})
        record = RankRecord(0, 0, "cuda:0", "completed", devices=[device], host=host)
        seconds = (
            0.001 * cell.strategy.micro_batch * (cell.depth or DEPTH) * (1.4 if cell.strategy.checkpointing else 1)
        )
        times = cell.strategy.accumulation
        sent = {"_allgather_base_": (1, 10_000_000)} if cell.strategy.family.zero == 3 else {}
        work = tuple(
            PhaseWork(1, phase, 1, 1, of_phase, 0.0, 0, 0, 0, sent)
            for phase, of_phase in (("forward", seconds * times), ("backward", 2 * seconds * times), ("step", 0.01))
        )
        return Measured(record, work, {"backward": PhasePeak(peak, activations)})


def _without_samples(cell: Measurement) -> Measurement:
    return Measurement(cell.strategy, cell.depth, 0, cell.world_size)
