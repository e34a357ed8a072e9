"""Tracks which module is running, forward or backward, and the names of the model's tensors."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from gonogo.evidence.rehearsal.record import TensorPlacement
from gonogo.virtual.memory.tracking import MemoryRecord
from gonogo.virtual.tensor import VirtualTensor


class ModuleTracker:
    """Follows every module's forward through torch's global hooks, and its backward through its output's node."""

    def __init__(self, memory: MemoryRecord) -> None:
        self.memory = memory
        self.stack: list[nn.Module] = []
        self.ran: set[int] = set()
        """Identities of the modules whose forward ran."""
        self.with_gradient: set[int] = set()
        """Identities of the parameters that got a gradient."""
        self.on_enter_root: Callable[[nn.Module], None] = lambda module: None
        self.on_embedding: Callable[[nn.Module, Any], None] = lambda module, inputs: None
        self._names: dict[int, str] = {}
        self._roots: dict[int, weakref.ref[nn.Module]] = {}
        self._watched: set[int] = set()
        self._handles: list[Any] = []

    def install(self) -> Callable[[], None]:
        """Register the hooks; returns a function that removes them."""
        hooks = torch.nn.modules.module
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enter_module),
            hooks.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        return self._remove_hooks

    def _remove_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()

    def add_root(self, root: nn.Module) -> None:
        """Register the names of a model's modules, without the parts that wrappers add."""
        for name, module in root.named_modules():
            self._names[id(module)] = _unwrapped_path(name)
        self._roots[id(root)] = weakref.ref(root)

    def path_of(self, module: nn.Module) -> str:
        """The module's path in its model, or its class name if it has none."""
        return self._names.get(id(module)) or type(module).__name__

    @property
    def current_path(self) -> str | None:
        """The path of the running module (in backward, the one whose output's gradient is being used)."""
        return self.memory.module

    def _enter_module(self, module: nn.Module, inputs: Any) -> None:
        if not self.stack:
            if id(module) not in self._names:
                self.add_root(module)
            self.on_enter_root(module)
        elif id(module) not in self._names:
            self._name_child(module)
        self.stack.append(module)
        self.ran.add(id(module))
        if isinstance(module, nn.Embedding):
            self.on_embedding(module, inputs)
        self.memory.module = self._names.get(id(module)) or type(module).__name__

    def _name_child(self, module: nn.Module) -> None:
        parent = self.stack[-1]
        prefix = self._names.get(id(parent), type(parent).__name__)
        for name, child in parent.named_modules():
            if name and id(child) not in self._names:
                self._names[id(child)] = f"{prefix}.{name}" if prefix else name

    def _leave_module(self, module: nn.Module, inputs: Any, output: Any) -> None:
        while self.stack:
            if self.stack.pop() is module:
                break
        node = _first_node(output)
        if node is not None:
            path = self._names.get(id(module)) or type(module).__name__
            node.register_prehook(lambda gradients: self._enter_backward(path))
        self.memory.module = self.path_of(self.stack[-1]) if self.stack else None

    def _enter_backward(self, path: str) -> None:
        if not self.stack:
            self.memory.module = path

    def roots(self) -> list[nn.Module]:
        """The live models, largest first."""
        alive = [root for reference in self._roots.values() if (root := reference()) is not None]
        return sorted(alive, key=lambda root: -sum(1 for _ in root.parameters()))

    def named_tensors(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """(name, kind, tensor) for each parameter, buffer, gradient and partition of the live models."""
        for root in self.roots():
            for name, parameter in root.named_parameters():
                name = name.removeprefix("module.")
                yield name, "parameter", parameter
                partition = getattr(parameter, "ds_tensor", None)
                if partition is not None:
                    yield name, "parameter", partition
                if parameter.is_leaf and parameter.grad is not None:
                    yield name, "gradient", parameter.grad
            for name, buffer in root.named_buffers():
                yield name.removeprefix("module."), "buffer", buffer

    def parameter_names_by_ds_id(self) -> dict[int, str]:
        """The names of the parameters by their ``ds_id`` from DeepSpeed."""
        return {
            number: name
            for name, kind, tensor in self.named_tensors()
            if kind == "parameter" and isinstance(number := getattr(tensor, "ds_id", None), int)
        }

    def name_of(self, tensor: torch.Tensor) -> tuple[str | None, str]:
        """(name, kind) of a tensor that is one of the models' tensors, or shares storage with one."""
        for name, kind, candidate in self.named_tensors():
            if candidate is tensor:
                return name, kind
            if not isinstance(tensor, VirtualTensor) or not isinstance(candidate, VirtualTensor):
                continue
            if candidate.cell is tensor.cell and candidate.numel():
                return name, kind
        return None, "unknown"

    def watch_gradients(self, root: nn.Module) -> None:
        """Note which trainable parameters get a gradient, and count the gradients' storages as gradients."""
        if id(root) in self._watched:
            return
        self._watched.add(id(root))
        for parameter in root.parameters():
            if parameter.requires_grad and parameter.is_leaf:
                parameter.register_hook(self._make_gradient_hook(id(parameter)))  # type: ignore[no-untyped-call]
                # Up to torch 2.8, that hook doesn't run if a checkpoint recomputes an autograd.Function.
                parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    lambda leaf: self.with_gradient.add(id(leaf))
                )

    def forget(self, root: nn.Module) -> None:
        """Watch a module again that takes the place, and the ``id``, of this one."""
        self._watched.discard(id(root))

    def has_any_gradient(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Whether any of them has or had a gradient: some optimizers step within the backward."""
        return any(one.grad is not None or id(one) in self.with_gradient for one in parameters)

    def _make_gradient_hook(self, parameter_id: int) -> Callable[[Any], None]:
        def note_gradient(gradient: Any) -> None:
            self.with_gradient.add(parameter_id)
            if isinstance(gradient, VirtualTensor) and owns_storage(gradient):
                self.memory.recategorise(gradient.cell, "gradients")

        return note_gradient

    def parameters_without_gradient(self, root: nn.Module) -> tuple[list[str], list[str]]:
        """Trainable parameters without gradient: (those that took part in no forward, those that did)."""
        unused: list[str] = []
        without: list[str] = []
        seen = _flattened_parameter_ids(root)
        for prefix, module in root.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                full = f"{prefix}.{name}".removeprefix(".").removeprefix("module.")
                got = id(parameter) in self.with_gradient
                if not parameter.requires_grad or got or id(parameter) in seen:
                    continue
                seen.add(id(parameter))
                (without if id(module) in self.ran else unused).append(full)
        return unused, without

    def tensors_left_on_cpu(self, root: nn.Module) -> list[TensorPlacement]:
        """Parameters and buffers on the CPU if most of the model is on an accelerator; without ZeRO's own tensors."""
        places = []
        named: list[tuple[str, torch.Tensor, bool]] = [
            (n, p, False) for n, p in root.named_parameters() if not hasattr(p, "ds_id")
        ]
        named += [(n, b, True) for n, b in root.named_buffers()]
        devices = [tensor.device.type for _, tensor, _ in named if tensor.numel()]
        parameters = [p.device.type for p in root.parameters()]
        if not parameters or sum(kind != "cpu" for kind in parameters) * 2 < len(parameters) or not devices:
            return []
        for name, tensor, is_buffer in named:
            if tensor.device.type == "cpu" and tensor.numel():
                dtype = str(tensor.dtype).removeprefix("torch.")
                name = name.removeprefix("module.")
                places.append(TensorPlacement(name, str(tensor.device), dtype, tuple(tensor.shape), is_buffer))
        return places


_WRAPPER_ATTRIBUTES = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})


def _unwrapped_path(name: str) -> str:
    """A module's path without the parts added by DDP, DeepSpeed, FSDP, checkpoint wrappers and torch.compile."""
    names = name.split(".")
    if names[0] == "module":
        del names[0]
    return ".".join(part for part in names if part not in _WRAPPER_ATTRIBUTES)


def _flattened_parameter_ids(root: nn.Module) -> set[int]:
    """The parameters that FSDP1 flattened: they are views, and only the flat parameter is in the graph."""
    handles = (getattr(module, "_handle", None) for module in root.modules())
    flat = (getattr(handle, "flat_param", None) for handle in handles)
    return {id(one) for parameter in flat for one in getattr(parameter, "_params", None) or ()}


def owns_storage(tensor: VirtualTensor) -> bool:
    """Whether the tensor makes up most of its storage, so that it isn't part of a bucket."""
    return tensor.numel() * tensor.element_size() * 2 >= tensor.cell.nbytes


def _first_node(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output.grad_fn if output.requires_grad else None
    if isinstance(output, dict):
        output = output.values()
    elif not isinstance(output, list | tuple):
        return None
    for value in output:
        node = _first_node(value)
        if node is not None:
            return node
    return None
