"""Operands created outside the mode: real CPU tensors (of data pipelines), and the program's own meta tensors.

An operator with only real tensors runs for real. Together with virtual ones, a real tensor is represented by a
virtual tensor that shares its values, the same one each time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gonogo.virtual import private
from gonogo.virtual.dispatch.placement import MIXED_DEVICE_OPERATORS, device_mismatch_error
from gonogo.virtual.dispatch.schema import Operator
from gonogo.virtual.memory.tracking import MemoryRecord
from gonogo.virtual.tensor import CPU, META, VirtualTensor, new_virtual, resolve_device
from gonogo.virtual.values import contents

aten = torch.ops.aten


_LIKE: dict[str, int | None] = {"empty_like": None, "rand_like": None, "randn_like": None, "full_like": None,
                                "zeros_like": 0, "ones_like": 1}  # fmt: skip
"""Factories that accept a meta tensor as template for another device, with the number that they fill in.

A buffer that is created on the CPU this way may be moved to the accelerator in place (FSDP2), so it must be virtual.
"""


class StandIns:
    """The virtual counterparts of real tensors; ``serve`` runs an operator of ``mode`` on virtual tensors only."""

    def __init__(
        self, memory: MemoryRecord, mode: TorchDispatchMode, serve: Callable[[Operator, Any, dict[str, Any]], Any]
    ) -> None:
        self._memory = memory
        self._mode = mode
        self._serve = serve
        self._of_real: dict[int, tuple[Any, VirtualTensor]] = {}

    def stand_in_for(self, real: torch.Tensor) -> VirtualTensor:
        """The virtual counterpart of a real CPU tensor, sharing its values; the same one each time."""
        if isinstance(real, VirtualTensor):
            return real
        memo = self._of_real.get(id(real))
        if memo is not None and memo[0]() is real and memo[1].shape == real.shape:
            return memo[1]
        with private.DisableTorchDispatch():
            tensor = new_virtual(real.shape, real.stride(), real.dtype, CPU)
        tensor.cell = self._memory.new_cell(CPU, real.untyped_storage().nbytes())
        tensor.cell.values = real.detach().untyped_storage()
        if real.storage_offset():
            tensor.cell.values = None
            contents.set_values(tensor, real.detach())
        number = id(real)
        self._of_real[number] = (weakref.ref(real, lambda _: self._of_real.pop(number, None)), tensor)
        return tensor

    def is_tainted(self, real: torch.Tensor) -> bool:
        """True if something unknown was written to a real tensor through its virtual counterpart."""
        memo = self._of_real.get(id(real))
        return memo is not None and memo[0]() is real and memo[1].cell.values is None

    def run(self, operator: Operator, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator with real (CPU) or meta tensors among its operands, created outside the mode."""
        virtual, reals, meta = _sort_tensors((*args, *kwargs.values()))
        wanted = kwargs.get("device")
        target = None if wanted is None else resolve_device(wanted)
        stays = target is None or target.type in ("cpu", "meta")
        if operator.func is aten.lift_fresh.default:
            return self.stand_in_for(args[0])
        if meta and target is not None and target.type != "meta" and operator.name in _LIKE:
            laid = operator.func(*args, **{**kwargs, "device": META})
            with self._mode:
                out = torch.empty_strided(laid.shape, laid.stride(), dtype=laid.dtype, device=target)
                number = args[1] if operator.name == "full_like" else _LIKE[operator.name]
                return out if number is None else out.fill_(number)
        if not virtual and (meta or stays) and not any(self.is_tainted(t) for t in reals):
            return operator.func(*args, **kwargs)
        if meta:
            if operator.name == "copy_" and meta == [args[0]]:
                return args[0]
            if operator.func in MIXED_DEVICE_OPERATORS:
                raise NotImplementedError("Cannot copy out of meta tensor; no data!")
            raise device_mismatch_error(virtual[0]._device if virtual else CPU, META)
        swapped = {id(t): self.stand_in_for(t) for t in reals}
        out = self._serve(
            operator,
            _replace_tensors(args, swapped),
            {k: _replace_tensors((v,), swapped)[0] for k, v in kwargs.items()},
        )
        back = {id(v): r for r in reals for v in (swapped[id(r)],)}
        return back.get(id(out), out)


def _sort_tensors(arguments: Any) -> tuple[list[VirtualTensor], list[torch.Tensor], list[torch.Tensor]]:
    virtual: list[VirtualTensor] = []
    reals: list[torch.Tensor] = []
    meta: list[torch.Tensor] = []
    for value in arguments:
        if isinstance(value, VirtualTensor):
            virtual.append(value)
        elif isinstance(value, torch.Tensor):
            (meta if value.device.type == "meta" else reals).append(value)
        elif isinstance(value, list | tuple):
            within = _sort_tensors(value)
            virtual += within[0]
            reals += within[1]
            meta += within[2]
    return virtual, reals, meta


def _replace_tensors(arguments: Any, replacements: dict[int, VirtualTensor]) -> Any:
    out = [
        _replace_tensors(v, replacements)
        if isinstance(v, list | tuple)
        else replacements.get(id(v), v)
        if isinstance(v, torch.Tensor)
        else v
        for v in arguments
    ]
    return tuple(out) if isinstance(arguments, tuple) else out
