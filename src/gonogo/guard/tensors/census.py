"""Records where every parameter, buffer, optimizer state and partition is, and where the config wants it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from gonogo.evidence.guarded.records import PlacedTensors, PlacementSnapshot
from gonogo.guard.common import memory

_MAX_TENSOR_NAMES = 5
_TensorKind = Literal["parameter", "buffer", "optimizer-state", "zero-partition", "fp32-partition", "master-weights"]
# Where DeepSpeed's optimizers keep the fp32 weights, or this rank's partition of them.
_MASTER_WEIGHTS: tuple[tuple[str, _TensorKind], ...] = (
    ("fp32_partitioned_groups_flat", "fp32-partition"),  # ZeRO-3
    ("single_partition_of_fp32_groups", "master-weights"),  # ZeRO-1 and 2
    ("fp32_groups_flat_partition", "master-weights"),  # bf16 without ZeRO
    ("fp32_groups_flat", "master-weights"),  # fp16 without ZeRO
)


def placement_snapshot(model: Any, engine: Any, moment: Literal["start", "first-step"]) -> PlacementSnapshot:
    """The placement of all tensors now. ``model`` and ``engine`` may be None."""
    torch: Any = sys.modules["torch"]
    stage, parameters_to, optimizer_to = offload_settings(engine)
    home = str(engine.device) if engine is not None and getattr(engine, "device", None) is not None else None
    places = _PlacementTable()
    if model is not None:
        for name, parameter in model.named_parameters():
            partition = getattr(parameter, "ds_tensor", None)
            if partition is not None:
                places.add("zero-partition", name, partition, _expected_device(parameters_to, home))
            else:
                places.add("parameter", name, parameter, home)
        for name, buffer in model.named_buffers():
            places.add("buffer", name, buffer, home)
    optimizer = getattr(engine, "optimizer", None)
    if optimizer is not None:
        expected = _expected_device(optimizer_to, home) if stage else home
        for attribute, what in _MASTER_WEIGHTS:
            for index, tensor in enumerate(getattr(optimizer, attribute, None) or ()):
                places.add(what, f"{attribute}[{index}]", tensor, expected)
        for name, tensor in _optimizer_states(getattr(optimizer, "optimizer", optimizer)):
            places.add("optimizer-state", name, tensor, expected)
    available, total = memory.host_memory()
    free = whole = allocated = reserved = 0
    if torch.cuda.is_initialized():
        free, whole = torch.cuda.mem_get_info()
        allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    return PlacementSnapshot(
        time.time(), tuple(places.as_facts()), moment, stage, parameters_to, optimizer_to,
        available, total, free, whole, allocated, reserved,
    )  # fmt: skip


def offload_settings(engine: Any) -> tuple[int, str, str]:
    """(ZeRO stage, device of offloaded parameters, device of the optimizer): ``none``, ``cpu`` or ``nvme``.

    ``partly`` if a share of the optimizer's work stays on the GPU.
    """
    if engine is None:
        return 0, "none", "none"
    config = getattr(getattr(engine, "_config", None), "zero_config", None)
    parameters, optimizer = getattr(config, "offload_param", None), getattr(config, "offload_optimizer", None)
    to = _offload_device(optimizer)
    if to == "cpu" and float(getattr(optimizer, "ratio", 1.0) or 1.0) < 1.0:
        to = "partly"
    return int(getattr(config, "stage", None) or 0), _offload_device(parameters), to


def _offload_device(settings: Any) -> str:
    device = getattr(settings, "device", None)
    return str(getattr(device, "value", device) or "none")


def _expected_device(offloaded_to: str, default_device: str | None) -> str | None:
    """The device where tensors have to be; None if they move (NVMe, partial offload)."""
    return {"none": default_device, "cpu": "cpu"}.get(offloaded_to)


def _optimizer_states(optimizer: Any) -> Iterator[tuple[str, Any]]:
    """An optimizer's states except 0-dim ones: step counts may be on any device."""
    state = getattr(optimizer, "state", None)
    for index, of_one in enumerate(state.values() if isinstance(state, dict) else ()):
        for name, value in of_one.items() if isinstance(of_one, dict) else ():
            if hasattr(value, "device") and getattr(value, "ndim", None):
                yield f"{name}[{index}]", value


class _PlacementTable:
    """Sums up tensors by part, device and dtype."""

    def __init__(self) -> None:
        self._names: dict[tuple[_TensorKind, str, str, str | None], list[str]] = {}
        self._bytes: dict[tuple[_TensorKind, str, str, str | None], int] = {}

    def add(self, part: _TensorKind, name: str, tensor: Any, expected: str | None) -> None:
        """Add one tensor; empty ones are ignored."""
        size = tensor.numel() * tensor.element_size()
        if not size:
            return
        key = (part, str(tensor.device), str(tensor.dtype).removeprefix("torch."), expected)
        self._names.setdefault(key, []).append(name)
        self._bytes[key] = self._bytes.get(key, 0) + size

    def as_facts(self) -> Iterable[PlacedTensors]:
        """The placements, the largest in bytes first."""
        for key, size in sorted(self._bytes.items(), key=lambda item: -item[1]):
            what, device, dtype, expected = key
            names = self._names[key]
            yield PlacedTensors(what, device, dtype, len(names), size, tuple(names[:_MAX_TENSOR_NAMES]), expected)
