"""Changes that make a run fit without changing what it learns, smallest first.

Smaller micro-batch with more accumulation, gradient checkpointing, a higher ZeRO stage, offload of optimizer and
parameters. A rehearsal continues after it exceeds the memory, so its peak tells what each change could free: what
can't be enough is not tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.rehearsal.failures import nested_value, offload_device
from gonogo.finding import Finding, Text, translated
from gonogo.trials.cure.batch import ACCUMULATION, MICRO_BATCH, Batch, read_batch
from gonogo.trials.cure.candidate import Candidate
from gonogo.trials.cure.loop_edits import loop_candidates
from gonogo.trials.cure.setting_edits import set_argument, set_checkpointing, set_zero

if TYPE_CHECKING:
    from gonogo.evidence.rehearsal.record import DeviceMemory, RankRecord
    from gonogo.evidence.run import Run
    from gonogo.finding import Edit
    from gonogo.trials.cure.trial import Trial

HAZARDS = frozenset({"gpu-oom-activations", "gpu-oom-model-states", "gpu-oom-eval-logits"})
_CHECKPOINTED_ACTIVATION_FRACTION = 0.3
"""Fraction of activations that checkpointing leaves: the minimum seen in benchmarks/memory.py, to miss no cure."""
_MAX_CANDIDATES = 6
"""At most this many candidates are rehearsed."""


class MemorySettings(msgspec.Struct, frozen=True):
    """Settings that differ from the run's own; None and False mean unchanged."""

    micro_batch: int | None = None
    checkpointing: bool = False
    stage: int | None = None
    offload_optimizer: bool = False
    offload_parameters: bool = False

    @property
    def size(self) -> int:
        """Number of changed settings; offloading states to the host weighs more, since it costs the most time."""
        return (
            (self.micro_batch is not None)
            + self.checkpointing
            + 2 * (self.stage is not None)
            + 3 * self.offload_optimizer
            + 4 * self.offload_parameters
        )

    @property
    def is_slower(self) -> bool:
        """Whether it computes more than before; orders changes of equal size."""
        return self.checkpointing

    @property
    def kind(self) -> str:
        """The names of the settings that it changes, to tell kinds of changes apart."""
        return " ".join(name for name in self.__struct_fields__ if getattr(self, name))


def _sort_key(change: MemorySettings) -> tuple[int, int, bool, int]:
    """Order: smaller first, then fewer settings, then those that don't slow it down, then the largest micro-batch."""
    return change.size, len(change.kind.split()), change.is_slower, -(change.micro_batch or 0)


def memory_candidates(finding: Finding, trial: Trial) -> Iterator[Candidate]:
    """Changes that may make it fit, smallest first."""
    run, record = trial.run, trial.record
    if run is None or record is None or finding.hazard not in HAZARDS:
        return
    found = [(rank, device) for rank in record.ranks for device in rank.devices if device.shortage is not None]
    if not found:
        return
    rank, device = max(found, key=lambda one: one[1].peak_allocated_bytes)
    assert device.shortage is not None
    yield from loop_candidates(finding, device.shortage, run)
    if device.shortage.phase == "evaluate":
        yield from _evaluation_candidates(finding, run)
        return
    batch = read_batch(run)
    changes = sorted(_setting_combinations(rank, batch), key=_sort_key)
    given = 0
    for change in changes:
        if given < _MAX_CANDIDATES and _may_fit(change, device, rank, batch, record.world_size):
            edits = _edits_for_settings(run, change, batch)
            if edits:
                given += 1
                yield Candidate(finding, _change_title(change, batch), tuple(edits), size=change.size, kind=change.kind)


def _setting_combinations(rank: RankRecord, batch: Batch | None) -> Iterator[MemorySettings]:
    """All combinations of settings that differ from the run's own."""
    config = rank.deepspeed_config
    stage = nested_value(config, "zero_optimization", "stage")
    stage = stage if isinstance(stage, int) else None
    micro_batches: list[int | None] = [None]
    if batch is not None:
        micro_batches += [size for size in range(batch.micro_batch - 1, 0, -1) if batch.micro_batch % size == 0]
    stages: list[int | None] = [None, *range(stage + 1, 4)] if stage is not None else [None]
    optimizers = (False, True) if stage and not offload_device(config, "offload_optimizer") else (False,)
    may_offload_parameters = stage is not None and not offload_device(config, "offload_param")
    for micro_batch, checkpointing, higher, optimizer in itertools.product(
        micro_batches, (False, True), stages, optimizers
    ):
        for parameters in (False, True) if may_offload_parameters and (higher or stage) == 3 else (False,):
            change = MemorySettings(micro_batch, checkpointing, higher, optimizer, parameters)
            if change.size:
                yield change


def _may_fit(change: MemorySettings, device: DeviceMemory, rank: RankRecord, batch: Batch | None, world: int) -> bool:
    """Whether the peak, minus all that the change could free, fits the accelerator's memory."""
    held = dict(device.by_category)
    if device.shortage is not None and device.peak_allocated_bytes < device.shortage.allocated_bytes:
        held = dict(device.shortage.by_category) or held
    stage = nested_value(rank.deepspeed_config, "zero_optimization", "stage")
    before = stage if isinstance(stage, int) else 0
    after = change.stage or before
    for category, partitioned_from in (("optimizer", 1), ("gradients", 2), ("parameters", 3)):
        if before < partitioned_from <= after:
            held[category] = held.get(category, 0) // world
    if change.offload_optimizer:
        held["optimizer"] = held["gradients"] = 0
    if change.offload_parameters:
        held["parameters"] = 0
    share = change.micro_batch / batch.micro_batch if change.micro_batch and batch is not None else 1.0
    kept = _CHECKPOINTED_ACTIVATION_FRACTION if change.checkpointing else 1.0
    held["activations"] = round(held.get("activations", 0) * share * kept)
    held["temporary"] = round(held.get("temporary", 0) * share)
    return sum(held.values()) <= device.total_bytes - device.allowance_bytes


def _edits_for_settings(run: Run, change: MemorySettings, batch: Batch | None) -> list[Edit] | None:
    """The edits for all settings; None if one of them is set nowhere that can be edited."""
    parts: list[list[Edit] | None] = []
    if change.micro_batch is not None and batch is not None:
        times = batch.micro_batch // change.micro_batch
        parts.append(set_argument(run, MICRO_BATCH, change.micro_batch))
        parts.append(set_argument(run, ACCUMULATION, batch.accumulation * times))
    if change.checkpointing:
        parts.append(set_checkpointing(run))
    zero: dict[str, object] = {}
    if change.stage is not None:
        zero["stage"] = change.stage
    if change.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if change.offload_parameters:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    if zero:
        parts.append(set_zero(run, zero))
    if any(part is None for part in parts):
        return None
    return [edit for part in parts for edit in part or ()]


def _change_title(change: MemorySettings, batch: Batch | None) -> Text:
    parts: list[Text] = []
    if change.micro_batch is not None and batch is not None:
        parts.append(
            translated(
                "micro-batch {size} and gradient accumulation {times} (were {before} and {steps}; same "
                "samples per step)").format(
                size=change.micro_batch, times=batch.accumulation * (batch.micro_batch // change.micro_batch),
                before=batch.micro_batch, steps=batch.accumulation,
            )
        )  # fmt: skip
    if change.checkpointing:
        parts.append(translated("gradient checkpointing"))
    if change.stage is not None:
        parts.append(Text(f"ZeRO stage {change.stage}", f"ZeRO stage {change.stage}"))
    if change.offload_optimizer:
        parts.append(translated("optimizer offload to the CPU"))
    if change.offload_parameters:
        parts.append(translated("parameter offload to the CPU"))
    return Text(", ".join(one.en for one in parts), "，".join(one.zh for one in parts))


_EVALUATION = {
    "per_device_eval_batch_size": (1, translated("evaluate one sample at a time")),
    "prediction_loss_only": (True, translated("keep only the loss in evaluation")),
    "eval_accumulation_steps": (1, translated("move evaluation outputs to host memory")),
}


def _evaluation_candidates(finding: Finding, run: Run) -> Iterator[Candidate]:
    """Changes that reduce the memory of evaluation without changing its results."""
    for name, (value, title) in _EVALUATION.items():
        if name != "prediction_loss_only" or run.arguments.get("compute_metrics").absent:
            edits = set_argument(run, name, value)
            if edits:
                yield Candidate(finding, title, tuple(edits), size=1)
