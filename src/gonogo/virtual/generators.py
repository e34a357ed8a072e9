"""Tracks which random generators belong to an accelerator, since C++ takes all of them for CPU generators.

C++ passes a generator to an operator as an object of torch's own class that claims to be on the CPU; only the address
of the wrapped object stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_ACCELERATORS: dict[int, str] = {}


def register_generator(generator: Any, kind: str) -> None:
    """Record the device type of an accelerator's random generator, for as long as it lives."""
    _ACCELERATORS[generator._cdata] = kind


def unregister_generator(generator: Any, _forget: Callable[..., object] = _ACCELERATORS.pop) -> None:
    """Unregister its address, which may be reused; ``_forget`` is bound here because modules are cleared at exit."""
    _forget(generator._cdata, None)


def generator_device_type(generator: Any) -> str:
    """The device type of a random generator."""
    return _ACCELERATORS.get(generator._cdata) or str(generator.device.type)


def check_rng_state(state: Any) -> None:
    """Check a generator's state as C++ does (``check_rng_state``): it must be a CPU byte tensor, even for a GPU.

    A state that ``torch.load(…, map_location="cuda")`` has put on the GPU is rejected.
    """
    if isinstance(state, torch.Tensor) and (state.dtype != torch.uint8 or state.device.type != "cpu"):
        raise TypeError("RNG state must be a torch.ByteTensor")
