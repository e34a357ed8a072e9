"""What ``gonogo plan`` is asked."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gonogo.evidence.hardware import Machine
from gonogo.plan.strategy import Tune


class PlanRequest(msgspec.Struct, frozen=True):
    """A model, the machine, and what the training is to be. Sizes are bytes, lengths tokens."""

    model: Path
    """A folder with config.json."""
    name: str
    """The model as the user names it."""
    machine: Machine
    seq_len: int
    tune: Tune = "full"
    lora_rank: int = 16
    global_batch: int | None = None
    nvme_bytes: int | None = None
    """Of a node."""
    nvme_drives: int = 1
    network_bytes: float | None = None
    """Bytes/s of one accelerator to other nodes."""
    dtype: str = "bf16"
    attention: str = "sdpa"
    timeout: float = 300.0

    @property
    def world_size(self) -> int:
        """Ranks of all nodes."""
        return self.machine.count * self.machine.nodes
