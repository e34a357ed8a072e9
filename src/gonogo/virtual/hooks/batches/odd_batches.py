"""Which of a program's later batches are unlike the first: with a larger number, a longer row, fewer rows.

A label that the head has no class for, a token that the embedding has no row for, the longest sample: where they stand
is known by reading the data, without running the model on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

MAX_ODD_BATCHES = 4
"""Batches that are run for what makes them odd."""
_MAX_TENSORS = 64

Measure = tuple[str, str]


def measures_of(batch: Any) -> dict[Measure, int]:
    """By tensor and kind: how many elements it has, at most and at least, and its largest and least whole number."""
    found: dict[Measure, int] = {}
    for place, (name, tensor) in enumerate(_tensors_in(batch, "")):
        if place >= _MAX_TENSORS:
            break
        found[name, "most"], found[name, "fewest"] = tensor.numel(), -tensor.numel()
        if tensor.numel() and not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool):
            least, largest = torch.aminmax(tensor)
            found[name, "largest"], found[name, "least"] = int(largest), -int(least)
    return found


def _tensors_in(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        if type(value) is torch.Tensor and value.device.type == "cpu" and value.layout == torch.strided:
            yield name, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _tensors_in(one, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for place, one in enumerate(value):
            yield from _tensors_in(one, f"{name}.{place}")


class OddBatches:
    """What the batches that a program was given measure, and which later ones measure more."""

    def __init__(self) -> None:
        self._most: dict[Measure, int] = {}

    def saw(self, batch: Any) -> None:
        """The program was given that batch."""
        for measure, value in measures_of(batch).items():
            self._most[measure] = max(value, self._most.get(measure, value))

    def among(self, batches: Iterable[Any]) -> list[int]:
        """The places of the odd ones of them, those first that are so in most ways."""
        holders: dict[Measure, int] = {}
        for place, batch in enumerate(batches):
            for measure, value in measures_of(batch).items():
                if value > self._most.get(measure, value - 1):
                    self._most[measure], holders[measure] = value, place
        counted = Counter(holders.values())
        return [place for place, _ in counted.most_common(MAX_ODD_BATCHES)]
