"""Memory that grows with each batch of an evaluation: what the program keeps per batch, extrapolated to all batches.

A rehearsal ends an evaluation after a few batches. A list of logits that stays on the GPU is still small then, but
fills the GPU in the real run. If memory grows in this way, one more batch is read to see whether the growth
continues; if so, the same amount is allocated for each batch that is left out, until the evaluation is over.
"""

from __future__ import annotations

import itertools

import torch

from gonogo.finding import translated
from gonogo.virtual.hooks.lifecycle import EVALUATION_BATCHES, Lifecycle
from gonogo.virtual.memory.tracking import DeviceRecord
from gonogo.virtual.tensor import CPU, VirtualTensor

_MIN_GROWTH_BYTES = 1 << 14
"""Smaller growth, such as a loss that is kept per batch, is ignored."""
_MIN_GROWTH_STEPS = 2
"""How many times memory has to grow: the second batch replaces what the first leaves behind (outputs, the batch)."""
_MEMORY_GROWTH_ASSUMPTION = translated(
    "each evaluation batch that is left out keeps as much GPU memory as the last one that was observed"
)


class EvaluationGrowth:
    """Measures how much memory an evaluation pass keeps per batch."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._life = lifecycle
        self._seen: dict[str, list[int]] = {}
        self._kept: list[torch.Tensor] = []

    def record_memory(self) -> None:
        """Note the memory in use before the next batch is read."""
        for device, record in self._life.memory.devices.items():
            if device != CPU:
                self._seen.setdefault(str(device), []).append(record.live)

    def should_read_more(self, batch_count: int) -> bool:
        """Whether to read one more batch to see whether memory keeps growing; all ranks decide together."""
        if batch_count > EVALUATION_BATCHES:
            return False
        self.record_memory()
        wants = bool(self._growth_per_batch(1))
        for seen in self._seen.values():
            seen.pop()
        everywhere = self._life.ask_left(int(wants)) if self._life.ask_left is not None else None
        return wants if everywhere is None else any(everywhere)

    def _growth_per_batch(self, batch_count: int) -> dict[str, int]:
        """Growth per batch, by device, if memory grew with each of the last ``batch_count`` batches."""
        found = {}
        for device, seen in self._seen.items():
            steps = [later - earlier for earlier, later in itertools.pairwise(seen[1:])]
            if len(steps) >= batch_count and min(steps[-batch_count:], default=0) >= _MIN_GROWTH_BYTES:
                found[device] = min(steps[-batch_count:])
        return found

    def allocate_remaining(self, left: int | None) -> None:
        """Allocate what the ``left`` remaining batches would keep, when the evaluation is ended early."""
        self.record_memory()
        for device, each in self._growth_per_batch(_MIN_GROWTH_STEPS).items() if left else ():
            record = self._life.memory.device(torch.device(device))
            if record.allocator is not None and record.shortage is None:
                self._life.ledger.assume(_MEMORY_GROWTH_ASSUMPTION)
                self._allocate_batches(record, torch.device(device), each, left or 0)
        self._kept.clear()

    def _allocate_batches(self, record: DeviceRecord, device: torch.device, bytes_per_batch: int, count: int) -> None:
        """Allocate batch by batch, as the program would; several at once while there is plenty of room."""
        allocator = record.allocator
        assert allocator is not None
        while count and record.shortage is None:
            room = (allocator.capacity_bytes - max(allocator.reserved, allocator.allocated)) // (2 * bytes_per_batch)
            taken = min(count, max(1, room))
            self._kept.append(self._allocate_bytes(taken * bytes_per_batch, device))
            count -= taken

    @staticmethod
    def _allocate_bytes(number: int, device: torch.device) -> torch.Tensor:
        with VirtualTensor.virtual_mode:
            return torch.empty(number, dtype=torch.uint8, device=device)
