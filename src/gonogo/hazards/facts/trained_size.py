"""Estimates what a full fine-tune trains, from the model's name, and what ZeRO-Offload keeps in host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.field import whole_number
from gonogo.evidence.patterns import Pattern

if TYPE_CHECKING:
    from gonogo.evidence.launch.launch import Launch
    from gonogo.evidence.run import Run

_MODEL_SIZE_PATTERN = Pattern(r"(?i)(?:^|[-_/])(\d{1,3}(?:\.\d+)?)b(?:$|[-_/.])")
_ADAM_BYTES_PER_PARAMETER = 12
"""Bytes per trained parameter: an fp32 copy and Adam's two moments."""


class OffloadedStates(msgspec.Struct, frozen=True):
    """Adam's states of all parameters, offloaded to the CPU."""

    billions: float
    nodes: int

    @property
    def bytes_per_node(self) -> int:
        """The part of the states that each node holds, in bytes."""
        return int(self.billions * 1e9 * _ADAM_BYTES_PER_PARAMETER / self.nodes)


def offloaded_optimizer_states(run: Run) -> OffloadedStates | None:
    """The states that a run offloads; None if it offloads none, trains adapters, or has a model of unknown size."""
    if run.config is None or run.config.offload_target("optimizer").get() != "cpu":
        return None
    billions = billions_of_trained_parameters(run)
    if billions is None or run.launch is None:
        return None
    return OffloadedStates(billions, whole_number(run.launch.nodes) or 1)


def billions_of_trained_parameters(run: Run) -> float | None:
    """Billions of parameters that a full fine-tune trains, by the model's name; None if unknown."""
    if run.launch is None or run.model is None or _trains_adapters(run.launch, run):
        return None
    named = _MODEL_SIZE_PATTERN.search(run.model.name)
    return float(named.group(1)) if named is not None else None


def _trains_adapters(launch: Launch, run: Run) -> bool:
    names = (*launch.options.names(), *run.arguments.names())
    if any("lora" in name.lower() or "peft" in name.lower() for name in names):
        return True
    kinds = ("train_type", "tuner_type", "finetuning_type")
    if any(str(run.arguments.get(name).get("full")).lower() != "full" for name in kinds):
        return True
    if run.framework == "ms-swift" and all(name not in names for name in kinds):
        return True  # LoRA is its default
    return any(b"peft" in script.source.data or b"requires_grad" in script.source.data for script in run.scripts)
