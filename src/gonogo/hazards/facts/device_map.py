"""Reads a model's ``hf_device_map``, and the device maps that scripts request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gonogo.evidence.number import parse_whole_number
from gonogo.evidence.patterns import lazy_compile

if TYPE_CHECKING:
    from gonogo.evidence.script.script import Call, Script
    from gonogo.finding import Edit

AUTO_DEVICE_MAPS = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})
"""The maps by which transformers and accelerate divide a model among all GPUs that a process sees."""


def local_rank_device_map_edits(script: Script, load: Call) -> tuple[Edit | None, ...]:
    """Edits that put each process's model on the GPU of its local rank, with the necessary import."""
    keyword = script.setting_keyword(load, "device_map", '{"": int(os.environ.get("LOCAL_RANK", 0))}')
    return (keyword,) if script.imports("os") else (script.inserting_import("import os"), keyword)


def device_map_accelerators(device_map: Mapping[str, object] | None) -> tuple[str, ...]:
    """The accelerators over which a device map spreads a model, sorted (``cuda:2`` before ``cuda:10``).

    A map gives devices as ``0``, ``"0"`` or ``"cuda:0"``; a bare index is an accelerator's. CPU and disk are left
    out.
    """
    indices: set[tuple[str, int]] = set()
    for device in (device_map or {}).values():
        kind, _, index = str(device).partition(":")
        if kind.isdecimal():
            kind, index = "cuda", kind
        if kind not in ("cpu", "disk", "meta"):
            indices.add((kind, parse_whole_number(index) or 0))
    return tuple(f"{kind}:{index}" for kind, index in sorted(indices))


def abbreviate_devices(devices: Sequence[str]) -> str:
    """``cuda:0 … cuda:7`` for three devices or more, else all of them."""
    return f"{devices[0]} … {devices[-1]}" if len(devices) > 2 else ", ".join(devices)


_DEVICE_PATTERN = lazy_compile(r"device\(type='(\w{1,12})'(?:, index=(\d{1,4}))?\)")


def parameter_devices(message: str) -> tuple[str, ...]:
    """The devices of a module's parameters that DistributedDataParallel lists, sorted; empty if it lists none."""
    listed = message.partition("module")[2]
    found = {(kind, int(index) if index else None) for kind, index in _DEVICE_PATTERN.findall(listed)}
    return tuple(
        kind if index is None else f"{kind}:{index}"
        for kind, index in sorted(found, key=lambda device: (device[0], device[1] or 0))
    )


def without_cpu_devices(devices: Sequence[str]) -> tuple[str, ...]:
    """The devices other than the CPU."""
    return tuple(device for device in devices if device not in ("cpu", "meta"))
