"""Finds later batches that differ from those seen so far: a larger integer, a longer or shorter tensor.

A label without a class in the head, a token without a row in the embedding, the longest sample: reading the data
shows where they are, without running the model on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

MAX_ODD_BATCHES = 4
"""At most this many odd batches are run."""
_MAX_TENSORS = 64

Measure = tuple[str, str]


def measure_batch(batch: Any) -> dict[Measure, int]:
    """By tensor: the number of elements, and the largest and smallest integer."""
    found: dict[Measure, int] = {}
    for place, (name, tensor) in enumerate(_named_tensors(batch, "")):
        if place >= _MAX_TENSORS:
            break
        found[name, "most"], found[name, "fewest"] = tensor.numel(), -tensor.numel()
        if tensor.numel() and not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool):
            least, largest = torch.aminmax(tensor)
            found[name, "largest"], found[name, "least"] = int(largest), -int(least)
    return found


def _named_tensors(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        if type(value) is torch.Tensor and value.device.type == "cpu" and value.layout == torch.strided:
            yield name, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _named_tensors(one, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for place, one in enumerate(value):
            yield from _named_tensors(one, f"{name}.{place}")


class OddBatches:
    """Finds batches whose sizes or values exceed those of all batches that the program has seen."""

    def __init__(self) -> None:
        self._most: dict[Measure, int] = {}

    def record_seen(self, batch: Any) -> None:
        """Note a batch that the program has seen."""
        for measure, value in measure_batch(batch).items():
            self._most[measure] = max(value, self._most.get(measure, value))

    def find_odd_indices(self, batches: Iterable[Any]) -> list[int]:
        """The indices of batches that exceed those seen, beginning with those that do so in most measures."""
        holders: dict[Measure, int] = {}
        for place, batch in enumerate(batches):
            for measure, value in measure_batch(batch).items():
                if value > self._most.get(measure, value - 1):
                    self._most[measure], holders[measure] = value, place
        counted = Counter(holders.values())
        return [place for place, _ in counted.most_common(MAX_ODD_BATCHES)]
