"""Which generators of random numbers are an accelerator's: to C++ all of them are the CPU's.

An operator is handed its generator by C++, as an object of torch's own class that says it is on the CPU; what stays
the same is the address of what the object wraps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_ACCELERATORS: dict[int, str] = {}


def made_for(generator: Any, kind: str) -> None:
    """``generator`` is one of an accelerator of this kind, for as long as it lives."""
    _ACCELERATORS[generator._cdata] = kind


def gone(generator: Any, _forget: Callable[..., object] = _ACCELERATORS.pop) -> None:
    """Its address may be another's from now on. (``_forget`` is bound here: modules are empty when Python ends.)"""
    _forget(generator._cdata, None)


def kind_of(generator: Any) -> str:
    """The type of device on which it draws."""
    return _ACCELERATORS.get(generator._cdata) or str(generator.device.type)


def check_rng_state(state: Any) -> None:
    """As C++ does (``check_rng_state``): the state of a generator, a GPU's too, is bytes on the CPU.

    One that ``torch.load(…, map_location="cuda")`` has put on the GPU is refused.
    """
    if isinstance(state, torch.Tensor) and (state.dtype != torch.uint8 or state.device.type != "cpu"):
        raise TypeError("RNG state must be a torch.ByteTensor")
