"""Memory that grows from one batch of an evaluation to the next: what a program keeps of each, counted for all.

A rehearsal ends an evaluation after a few batches. A list of logits that stays on the GPU is small by then, and fills
it in the run. Where memory grows so, one batch more is read to see whether it goes on; if it does, as much is allocated
for each of the batches that are left out, until the evaluation is over.
"""

from __future__ import annotations

import itertools

import torch

from gonogo.finding import translated
from gonogo.virtual.hooks.lifecycle import EVALUATION_BATCHES, Lifecycle
from gonogo.virtual.memory.tracking import DeviceRecord
from gonogo.virtual.tensor import CPU, VirtualTensor

_MIN_GROWTH_BYTES = 1 << 14
"""Bytes: a loss that is kept of each batch is less, and fills nothing."""
_MIN_GROWTH_STEPS = 2
"""How often it has to grow: what the first batch leaves behind (outputs, the batch itself) the second one replaces."""
_MEMORY_GROWTH_ASSUMPTION = translated(
    "each evaluation batch that is left out keeps as much GPU memory as the last one that was observed"
)


class EvaluationGrowth:
    """What one pass over an evaluation's data keeps of each batch."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._life = lifecycle
        self._seen: dict[str, list[int]] = {}
        self._kept: list[torch.Tensor] = []

    def note(self) -> None:
        """Another batch is about to be read."""
        for device, record in self._life.memory.devices.items():
            if device != CPU:
                self._seen.setdefault(str(device), []).append(record.live)

    def goes_on(self, batch_count: int) -> bool:
        """Whether one batch more is to be read, to see whether memory goes on growing; ranks read on together."""
        if batch_count > EVALUATION_BATCHES:
            return False
        self.note()
        wants = bool(self._growth_per_batch(1))
        for seen in self._seen.values():
            seen.pop()
        everywhere = self._life.ask_left(int(wants)) if self._life.ask_left is not None else None
        return wants if everywhere is None else any(everywhere)

    def _growth_per_batch(self, batch_count: int) -> dict[str, int]:
        """By device, by how much each of the last batches has made memory grow, where all did."""
        found = {}
        for device, seen in self._seen.items():
            steps = [later - earlier for earlier, later in itertools.pairwise(seen[1:])]
            if len(steps) >= batch_count and min(steps[-batch_count:], default=0) >= _MIN_GROWTH_BYTES:
                found[device] = min(steps[-batch_count:])
        return found

    def extend(self, left: int | None) -> None:
        """The evaluation ends here, with so many batches left: take what they would keep."""
        self.note()
        for device, each in self._growth_per_batch(_MIN_GROWTH_STEPS).items() if left else ():
            record = self._life.memory.device(torch.device(device))
            if record.allocator is not None and record.shortage is None:
                self._life.ledger.assume(_MEMORY_GROWTH_ASSUMPTION)
                self._take(record, torch.device(device), each, left or 0)
        self._kept.clear()

    def _take(self, record: DeviceRecord, device: torch.device, bytes_per_batch: int, count: int) -> None:
        """Allocate as the program would, batch for batch; many at once where there is surely room."""
        allocator = record.allocator
        assert allocator is not None
        while count and record.shortage is None:
            room = (allocator.capacity_bytes - max(allocator.reserved, allocator.allocated)) // (2 * bytes_per_batch)
            taken = min(count, max(1, room))
            self._kept.append(self._bytes(taken * bytes_per_batch, device))
            count -= taken

    @staticmethod
    def _bytes(number: int, device: torch.device) -> torch.Tensor:
        with VirtualTensor.virtual_mode:
            return torch.empty(number, dtype=torch.uint8, device=device)
