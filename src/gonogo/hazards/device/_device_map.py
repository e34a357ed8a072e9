"""What a model's ``hf_device_map`` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gonogo.evidence.patterns import compiled_when_used


def accelerators_of(device_map: Mapping[str, object] | None) -> tuple[str, ...]:
    """The accelerators that a device map spreads a model over, sorted (``cuda:2`` before ``cuda:10``); no CPU, no disk.

    A map gives devices as ``0``, ``"0"`` or ``"cuda:0"``; a bare index is an accelerator's.
    """
    indices: set[tuple[str, int]] = set()
    for device in (device_map or {}).values():
        kind, _, index = str(device).partition(":")
        if kind.isdigit():
            kind, index = "cuda", kind
        if kind not in ("cpu", "disk", "meta"):
            indices.add((kind, int(index) if index.isdigit() else 0))
    return tuple(f"{kind}:{index}" for kind, index in sorted(indices))


def in_short(devices: Sequence[str]) -> str:
    """``cuda:0 … cuda:7`` for three devices or more, else all of them."""
    return f"{devices[0]} … {devices[-1]}" if len(devices) > 2 else ", ".join(devices)


_DEVICE = compiled_when_used(r"device\(type='(\w{1,12})'(?:, index=(\d{1,4}))?\)")


def parameter_devices(message: str) -> tuple[str, ...]:
    """The devices that DistributedDataParallel lists of a module's parameters, sorted; none where it doesn't."""
    listed = message.partition("module")[2]
    found = {(kind, int(index) if index else None) for kind, index in _DEVICE.findall(listed)}
    return tuple(
        kind if index is None else f"{kind}:{index}"
        for kind, index in sorted(found, key=lambda device: (device[0], device[1] or 0))
    )


def accelerators_in(devices: Sequence[str]) -> tuple[str, ...]:
    """The devices that are no host's."""
    return tuple(device for device in devices if device not in ("cpu", "meta"))
