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

_WORTH_COUNTING = 1 << 14
"""Bytes: a loss that is kept of each batch is less, and fills nothing."""
_SEEN = 2
"""How often it has to grow: what the first batch leaves behind (outputs, the batch itself) the second one replaces."""
_GROWS = translated("each evaluation batch that is left out keeps as much GPU memory as the last one that was observed")


class EvaluationGrowth:
    """What one pass over an evaluation's data keeps of each batch."""

    def __init__(self, life: Lifecycle) -> None:
        self._life = life
        self._seen: dict[str, list[int]] = {}
        self._kept: list[torch.Tensor] = []

    def note(self) -> None:
        """Another batch is about to be read."""
        for device, record in self._life.memory.devices.items():
            if device != CPU:
                self._seen.setdefault(str(device), []).append(record.live)

    def goes_on(self, given: int) -> bool:
        """Whether one batch more is to be read, to see whether memory goes on growing; ranks read on together."""
        if given > EVALUATION_BATCHES:
            return False
        self.note()
        wants = bool(self._grown(1))
        for seen in self._seen.values():
            seen.pop()
        everywhere = self._life.ask_left(int(wants)) if self._life.ask_left is not None else None
        return wants if everywhere is None else any(everywhere)

    def _grown(self, times: int) -> dict[str, int]:
        """By device, by how much each of the last batches has made memory grow, where all did."""
        found = {}
        for device, seen in self._seen.items():
            steps = [later - earlier for earlier, later in itertools.pairwise(seen[1:])]
            if len(steps) >= times and min(steps[-times:], default=0) >= _WORTH_COUNTING:
                found[device] = min(steps[-times:])
        return found

    def extend(self, left: int | None) -> None:
        """The evaluation ends here, with so many batches left: take what they would keep."""
        self.note()
        for device, each in self._grown(_SEEN).items() if left else ():
            record = self._life.memory.device(torch.device(device))
            if record.allocator is not None and record.shortage is None:
                self._life.ledger.assume(_GROWS)
                self._take(record, torch.device(device), each, left or 0)
        self._kept.clear()

    def _take(self, record: DeviceRecord, device: torch.device, each: int, count: int) -> None:
        """Allocate as the program would, batch for batch; many at once where there is surely room."""
        allocator = record.allocator
        assert allocator is not None
        while count and record.shortage is None:
            room = (allocator.capacity_bytes - max(allocator.reserved, allocator.allocated)) // (2 * each)
            taken = min(count, max(1, room))
            self._kept.append(self._bytes(taken * each, device))
            count -= taken

    @staticmethod
    def _bytes(number: int, device: torch.device) -> torch.Tensor:
        with VirtualTensor.virtual_mode:
            return torch.empty(number, dtype=torch.uint8, device=device)
