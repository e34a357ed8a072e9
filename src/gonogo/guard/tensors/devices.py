"""`gonogo.check_devices`: checks that tensors are on one device, and tabulates where each of them is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any


class MixedDevicesError(RuntimeError):
    """Raised if tensors that are used together are on different devices.

    ``devices`` maps each tensor's name to its device; ``odd`` are the names of those that are not where most are.
    """

    def __init__(self, message: str, devices: dict[str, str], mismatched: tuple[str, ...]) -> None:
        super().__init__(message)
        self.devices = devices
        self.odd = mismatched


def check_devices(*tensors: Any, names: Sequence[str] | None = None, expected: Any = None) -> str | None:
    """Return the device that all tensors share, such as ``"cuda:0"``; raise if there is more than one.

    Each argument may be a tensor, a module (its parameters and buffers count), or a list, tuple or dictionary of
    those, nested to any depth; anything else is ignored. ``names``: one for each argument, for the table in the
    error; by default they are numbered from 0. ``expected``: the device where all have to be, such as ``"cuda:0"`` or
    a ``torch.device``; by default the one where most are.

    A 0-dim tensor on the CPU mixes with any device, as it does in torch, and does not count; nor does a parameter
    that ZeRO-3 has not gathered. None if no tensor is left. Nothing waits for the GPU.

    Raises :class:`MixedDevicesError` (a ``RuntimeError``) with a table of all tensors: name, device, dtype, shape.
    Raises ValueError if the number of ``names`` differs from that of the arguments.
    """
    if names is not None and len(names) != len(tensors):
        raise ValueError(f"check_devices: {len(names)} names for {len(tensors)} arguments")
    labels = names if names is not None else [str(number) for number in range(len(tensors))]
    found = [one for label, value in zip(labels, tensors, strict=True) for one in _named_tensors(label, value, 0)]
    return check_named(found, None if expected is None else str(expected))


def check_named(
    named_tensors: list[tuple[str, Any]], expected: str | None = None, message_prefix: str = ""
) -> str | None:
    """As :func:`check_devices`, for named tensors. ``message_prefix`` starts the error message."""
    counted = [(name, tensor) for name, tensor in named_tensors if not _is_compatible_with_any_device(tensor)]
    if not counted:
        return None
    devices = {name: str(tensor.device) for name, tensor in counted}
    home = expected or _majority_device(devices)
    if ":" not in home and home != "cpu":
        odd = tuple(name for name, device in devices.items() if device.partition(":")[0] != home)
    else:
        odd = tuple(name for name, device in devices.items() if device != home)
    if odd:
        verb = "is" if len(odd) == 1 else "are"
        named = ", ".join(odd[:5]) + (f" and {len(odd) - 5} more" if len(odd) > 5 else "")
        message = f"{message_prefix}{named} {verb} not on {home}\n{format_table(counted, odd)}"
        raise MixedDevicesError(message, devices, odd)
    return home


def _majority_device(devices: dict[str, str]) -> str:
    """The device of most tensors; in a tie, an accelerator."""
    counts = Counter(devices.values())
    return max(counts, key=lambda device: (counts[device], device != "cpu"))


def _is_compatible_with_any_device(tensor: Any) -> bool:
    """Whether torch allows the tensor together with any device (0-dim CPU tensor), or it has no data."""
    status = getattr(getattr(tensor, "ds_status", None), "name", "AVAILABLE")
    return (tensor.device.type == "cpu" and tensor.ndim == 0) or tensor.device.type == "meta" or status != "AVAILABLE"


def format_table(tensors: list[tuple[str, Any]], mismatched: tuple[str, ...], max_rows: int = 40) -> str:
    """A table of tensors and their devices, one per line; mismatched ones first, with a mark."""
    marked = set(mismatched)
    ordered = sorted(tensors, key=lambda item: item[0] not in marked)
    rows = [
        (name, str(tensor.device), str(tensor.dtype).removeprefix("torch."), str(tuple(tensor.shape)))
        for name, tensor in ordered[:max_rows]
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = []
    for row in rows:
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        lines.append(f"{'>' if row[0] in marked else ' '} {cells}")
    if len(ordered) > max_rows:
        lines.append(f"  … {len(ordered) - max_rows} more")
    return "\n".join(lines)


def _named_tensors(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, torch.nn.Module):
        for inner, tensor in (*value.named_parameters(), *value.named_buffers()):
            yield f"{name}.{inner}", tensor
    elif depth < 8 and isinstance(value, list | tuple):
        for index, one in enumerate(value):
            yield from _named_tensors(f"{name}[{index}]", one, depth + 1)
    elif depth < 8 and hasattr(value, "items"):
        for key, one in list(value.items()):
            yield from _named_tensors(f"{name}[{key!r}]", one, depth + 1)
