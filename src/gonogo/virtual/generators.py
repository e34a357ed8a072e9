"""Which generators of random numbers are an accelerator's: to C++ all of them are the CPU's.

An operator is handed its generator by C++, as an object of torch's own class that says it is on the CPU; what stays
the same is the address of what the object wraps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
