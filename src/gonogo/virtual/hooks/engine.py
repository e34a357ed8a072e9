"""DeepSpeed's engine, followed: when it is made, steps and saves, and what its buffers are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gonogo.virtual.hooks.after_import import after_import
from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.hooks.modules import ModuleTracker
from gonogo.virtual.hooks.patching import Patches
from gonogo.virtual.hooks.training import count_states
from gonogo.virtual.tensor import VirtualTensor

_BUFFERS = {
    "fp16_partitioned_groups_flat": "parameters",
    "lp_param_buffer": "parameters",
    "bit16_groups_flat": "parameters",
    "param_groups_fp16_flat_cpu_memory": "parameters",
    "param_buffer_of_bit16_for_cpu_offload_groups": "parameters",
    "fp32_partitioned_groups_flat": "optimizer",
    "single_partition_of_fp32_groups": "optimizer",
    "fp32_groups_flat_partition": "optimizer",
    "grad_partitions_flat_buffer": "gradients",
    "averaged_gradients": "gradients",
    "all_grad_tensors": "gradients",
    "fp32_groups_gradients_flat_partition": "gradients",
    "ipg_buffer": "communication",
    "ipg_buckets": "communication",
    "ipg_bucket_flat_buffer": "communication",
    "param_id_to_grad_partition": "gradients",
    "temp_grad_buffer_for_cpu_offload": "communication",
    "temp_grad_buffer_for_gpu_offload": "communication",
}
"""Attributes of DeepSpeed's ZeRO and mixed-precision optimizers that hold tensors, and what these are."""


def install(life: Lifecycle, modules: ModuleTracker, facts: dict[str, Any]) -> Callable[[], None]:
    """Follow every engine; the config as it resolved it is left in ``facts["deepspeed_config"]``."""
    patches = Patches()
    patches.on_undo(
        after_import("deepspeed.runtime.engine", lambda module: _follow(patches, module, life, modules, facts))
    )
    patches.on_undo(
        after_import(
            "deepspeed.runtime.zero.partitioned_param_coordinator",
            lambda module: _count_gathered(patches, module, life),
        )
    )
    patches.on_undo(after_import("deepspeed.runtime.zero.stage3", lambda module: _count_reduced(patches, module, life)))
    return patches.undo


def _follow(patches: Patches, module: Any, life: Lifecycle, modules: ModuleTracker, facts: dict[str, Any]) -> None:
    engine_class = module.DeepSpeedEngine
    init, step = engine_class.__init__, engine_class.step

    @functools.wraps(init)
    def followed_init(engine: Any, *args: Any, **kwargs: Any) -> None:
        life.has_engine = True
        with life.during("init", "deepspeed.initialize"):
            init(engine, *args, **kwargs)
        modules.add_root(engine)
        # `engine.config` is what the program gave: to an older DeepSpeed it may be a path.
        facts["deepspeed_config"] = engine._config._param_dict
        _count_weights(engine, life)
        _count_buffers(engine, life)

    @functools.wraps(step)
    def followed_step(engine: Any, *args: Any, **kwargs: Any) -> None:
        boundary = engine.is_gradient_accumulation_boundary()
        with life.during("step", "engine.step"):
            step(engine, *args, **kwargs)
            if boundary:
                _count_buffers(engine, life)
        if boundary:
            life.step_done()

    patches.set(engine_class, "__init__", followed_init)
    patches.set(engine_class, "step", followed_step)
    _during(patches, engine_class, "backward", life, "backward")
    for name in ("save_checkpoint", "save_16bit_model", "save_fp16_model", "_zero3_consolidated_16bit_state_dict"):
        if hasattr(engine_class, name):
            _during(patches, engine_class, name, life, "save")


def _during(patches: Patches, owner: Any, name: str, life: Lifecycle, phase: Any) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def followed(self: Any, *args: Any, **kwargs: Any) -> Any:
        with life.during(phase, f"engine.{name}"):
            return original(self, *args, **kwargs)

    patches.set(owner, name, followed)


def _counting(patches: Patches, owner: Any, name: str, life: Lifecycle, category: str) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def counted(*args: Any, **kwargs: Any) -> Any:
        with life.memory.counting_as(category):
            return original(*args, **kwargs)

    patches.set(owner, name, counted)


def _count_gathered(patches: Patches, module: Any, life: Lifecycle) -> None:
    """Parameters that ZeRO-3 gathers for a module are parameters while they are held."""
    _counting(patches, module.PartitionedParameterCoordinator, "fetch_sub_module", life, "parameters")


def _count_reduced(patches: Patches, module: Any, life: Lifecycle) -> None:
    """Buckets into which gradients are put to be reduced are communication buffers."""
    owner = module.DeepSpeedZeroOptimizer_Stage3
    for name in dir(owner):
        reduces = "reduce" in name and any(word in name for word in ("ipg", "bucket", "grad"))
        if reduces and callable(getattr(owner, name)):
            _counting(patches, owner, name, life, "communication")


def _count_weights(engine: Any, life: Lifecycle) -> None:
    """The model's weights are parameters, frozen ones too, though they came to the device while the engine was made."""
    for parameter in engine.module.parameters():
        for tensor in (parameter, getattr(parameter, "ds_tensor", None)):
            if isinstance(tensor, VirtualTensor):
                life.memory.recategorise(tensor.cell, "parameters")


def _count_buffers(engine: Any, life: Lifecycle) -> None:
    optimizer = getattr(engine, "optimizer", None)
    if optimizer is None:
        return
    for attribute, value in vars(optimizer).items():
        category = _BUFFERS.get(attribute.rpartition("__")[2])  # a class-private name carries the class's
        for tensor in _tensors_in(value) if category is not None else ():
            life.memory.recategorise(tensor.cell, str(category))
            gradient = tensor.grad if tensor.is_leaf else None
            if isinstance(gradient, VirtualTensor):
                life.memory.recategorise(gradient.cell, "gradients")
    count_states(getattr(optimizer, "optimizer", optimizer), life)


def _tensors_in(value: Any, depth: int = 0) -> list[VirtualTensor]:
    if isinstance(value, VirtualTensor):
        return [value]
    if depth > 3:
        return []
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple | set):
        value = [getattr(value, "buffer", None)] if hasattr(value, "buffer") else []
    return [tensor for item in value for tensor in _tensors_in(item, depth + 1)]
