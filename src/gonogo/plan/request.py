"""What ``gonogo plan`` is asked."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gonogo.errors import UserError
from gonogo.evidence.hardware import Machine
from gonogo.finding import Text
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


def model_folder(name: str) -> Path:
    """The folder of a model: a path, or a hub name whose config.json is in the hub's cache.

    Raises UserError where it is neither.
    """
    from gonogo.evidence.model import places_of_config

    for path in places_of_config(name, Path.cwd()):
        if path.is_file():
            return path.parent
    if Path(name).expanduser().exists():
        return Path(name).expanduser()
    raise UserError(
        Text(
            "{name}: no such folder, and no model of that name in the hub's cache: give a folder with its config.json",
            "{name}：没有这个目录，hub 缓存里也没有这个模型：请给出含有 config.json 的目录",
        ).format(name=name)
    )
