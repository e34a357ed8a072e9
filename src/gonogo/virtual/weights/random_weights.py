"""Weights that ``from_pretrained`` initialized randomly and that no later ``load_state_dict`` has set."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gonogo.evidence.rehearsal.record import LoadedWeights
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.stack import frames_of_call
from gonogo.virtual.weights.safetensors_files import tensor_names_in


class _RandomTensor(NamedTuple):
    """A parameter or buffer, and the number of elements that it adds to the model's parameters: tied ones count
    once."""

    tensor: weakref.ref[Any]
    elements: int


class RandomWeights:
    """The model loads of a rank with missing weights, and which of these weights still have their random values.

    A program may load them itself afterwards: ``model.load_state_dict`` after removing a wrapper's prefix from the
    names, its own ``pytorch_model.bin``, or a resumed checkpoint.
    """

    def __init__(self, patches: Patches, module_class: Any) -> None:
        self._loads: list[tuple[LoadedWeights, dict[str, _RandomTensor]]] = []
        original = module_class.load_state_dict

        @functools.wraps(original)
        def load_state_dict(module: Any, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
            incompatible = original(module, state_dict, *args, **kwargs)
            if self._loads:
                self._remove_initialized(
                    {id(tensor) for name, tensor in _tensors_by_name(module).items() if name in state_dict}
                )
            return incompatible

        patches.set(module_class, "load_state_dict", load_state_dict)

    @property
    def remaining_loads(self) -> list[LoadedWeights]:
        """The loads with weights that are still random, in order."""
        return [load for load, _ in self._loads]

    def record_missing(self, model: Any, missing_names: Sequence[str], source: str, files: Sequence[Any]) -> None:
        """Record the weights that ``from_pretrained`` reported as randomly initialized, compared with the ``files``
        it read."""
        stored = tensor_names_in(files)
        sizes = {name: _full_numel(parameter) for name, parameter in model.named_parameters()}
        tensors = _tensors_by_name(model)
        drawn = {
            name: _RandomTensor(weakref.ref(tensors[name]), sizes.get(name, 0))
            for name in missing_names
            if name in tensors
        }
        load = LoadedWeights(
            model=type(model).__name__,
            source=source,
            parameters=sum(sizes.values()),
            missing_parameters=sum(one.elements for one in drawn.values()),
            missing=tuple(missing_names),
            held=tuple(name for name in missing_names if name in stored),
            named_instead=next((name for name in sorted(stored) if name.endswith(f".{missing_names[0]}")), None),
            under_zero3=any(hasattr(parameter, "ds_id") for parameter in model.parameters()),
            frames=tuple(frames_of_call()),
        )
        self._loads.append((load, drawn))

    def _remove_initialized(self, initialized_ids: set[int]) -> None:
        loads = ((_remaining_load(load, drawn, initialized_ids), drawn) for load, drawn in self._loads)
        self._loads = [(left, drawn) for left, drawn in loads if left is not None]


def _remaining_load(
    load: LoadedWeights, random_weights: Mapping[str, _RandomTensor], initialized_ids: set[int]
) -> LoadedWeights | None:
    """The load without the weights that were set since; None if no others are left."""
    found = {
        name for name in load.missing if name in random_weights and id(random_weights[name].tensor()) in initialized_ids
    }
    missing = tuple(name for name in load.missing if name not in found)
    if not missing:
        return None
    return msgspec.structs.replace(
        load,
        missing=missing,
        missing_parameters=sum(random_weights[name].elements for name in missing if name in random_weights),
        held=tuple(name for name in load.held if name not in found),
    )


def _tensors_by_name(module: Any) -> dict[str, Any]:
    """Parameters and buffers by all of their names; tied ones have several."""
    return dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])


def _full_numel(parameter: Any) -> int:
    """Number of elements of the whole parameter, even if ZeRO-3 has partitioned it."""
    return int(getattr(parameter, "ds_numel", None) or parameter.numel())
