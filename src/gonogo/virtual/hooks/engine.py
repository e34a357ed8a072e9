"""Observes DeepSpeed's engine: creation, steps, saves, gathered parameters and gradient reduction."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.hooks.memory_ownership import assign_gathered_owners, assign_model_owners
from gonogo.virtual.hooks.modules import ModuleTracker
from gonogo.virtual.hooks.zero_buffers import assign_buffer_owners, categorise_buffers
from gonogo.virtual.memory.tracking import MemoryRecord
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor

_BACKEND = "deepspeed.compile.backend"

_REDUCER_CLASSES = (
    ("stage3", "DeepSpeedZeroOptimizer_Stage3", "communication"),
    ("stage_1_and_2", "DeepSpeedZeroOptimizer", None),
)
"""(file, class, category of what its reduction allocates; None: that of the phase)."""
_PARTITION_METHODS = ("copy_grads_in_partition", "_build_compact_grad_partition_buffer")
"""Of ZeRO-1 and -2: they allocate what this rank keeps of the gradients, in the middle of backward."""


def install(lifecycle: Lifecycle, modules: ModuleTracker, facts: dict[str, Any]) -> Callable[[], None]:
    """Wrap every engine; stores the config, as the engine resolved it, in ``facts["deepspeed_config"]``."""
    patches = Patches()
    _skip_rank0_comparison(patches)
    patches.on_undo(
        after_import(
            "deepspeed.runtime.engine", lambda module: _patch_engine(patches, module, lifecycle, modules, facts)
        )
    )
    patches.on_undo(
        after_import(
            "deepspeed.runtime.zero.partitioned_param_coordinator",
            lambda module: _categorise_gathered_parameters(patches, module, lifecycle, modules),
        )
    )
    pipeline = functools.partial(_track_pipeline_engine, patches, lifecycle, modules)
    patches.on_undo(after_import("deepspeed.runtime.pipe.engine", pipeline))
    for file, name, category in _REDUCER_CLASSES:
        follow = functools.partial(_categorise_reduction_buckets, patches, lifecycle, name, category)
        patches.on_undo(after_import(f"deepspeed.runtime.zero.{file}", follow))
    return patches.undo


def _patch_engine(
    patches: Patches, module: Any, lifecycle: Lifecycle, modules: ModuleTracker, facts: dict[str, Any]
) -> None:
    engine_class = module.DeepSpeedEngine
    init, step = engine_class.__init__, engine_class.step

    @functools.wraps(init)
    def init_and_track(engine: Any, *args: Any, **kwargs: Any) -> None:
        lifecycle.has_engine = True
        try:
            with lifecycle.during("init", "deepspeed.initialize"):
                init(engine, *args, **kwargs)
        except BaseException:
            _categorise_weights_of_failed_engine(engine, lifecycle, modules)
            raise
        modules.add_root(engine)
        # `engine.config` is what the program passed: for older DeepSpeed versions it may be a path.
        facts["deepspeed_config"] = lifecycle.seen.engine_config = engine._config._param_dict
        lifecycle.seen.stage = engine.zero_optimization_stage()
        _categorise_weights(engine, lifecycle)
        categorise_buffers(engine, lifecycle)
        assign_buffer_owners(engine, modules)

    @functools.wraps(step)
    def step_and_track(engine: Any, *args: Any, **kwargs: Any) -> None:
        boundary = engine.is_gradient_accumulation_boundary()
        if boundary:
            assign_buffer_owners(engine, modules)
        with lifecycle.during("step", "engine.step"):
            step(engine, *args, **kwargs)
            if boundary:
                categorise_buffers(engine, lifecycle)
                assign_buffer_owners(engine, modules)
        if boundary:
            lifecycle.on_optimizer_step(engine)

    # The weights that an engine moves to the device count as parameters, even if its creation fails later.
    _wrap_with_memory_category(patches, engine_class, "_configure_distributed_model", lifecycle.memory, "parameters")
    patches.set(engine_class, "__init__", init_and_track)
    patches.set(engine_class, "step", step_and_track)
    _wrap_in_phase(patches, engine_class, "backward", lifecycle, "backward")
    for name in ("save_checkpoint", "save_16bit_model", "save_fp16_model", "_zero3_consolidated_16bit_state_dict"):
        if hasattr(engine_class, name):
            _wrap_in_phase(patches, engine_class, name, lifecycle, "save")


def _track_pipeline_engine(patches: Patches, lifecycle: Lifecycle, modules: ModuleTracker, module: Any) -> None:
    """Wrap the optimizer step of a pipeline engine, which is an instruction of its schedule instead of ``step``."""
    owner = module.PipelineEngine
    step = owner._exec_optimizer_step

    @functools.wraps(step)
    def step_and_track(engine: Any, *args: Any, **kwargs: Any) -> None:
        assign_buffer_owners(engine, modules)
        with lifecycle.during("step", "engine.train_batch"):
            step(engine, *args, **kwargs)
            categorise_buffers(engine, lifecycle)
            assign_buffer_owners(engine, modules)
        lifecycle.on_optimizer_step(engine)

    patches.set(owner, "_exec_optimizer_step", step_and_track)
    for instruction, function in owner._INSTRUCTION_MAP.items():
        if function is step:
            patches.set_item(owner._INSTRUCTION_MAP, instruction, step_and_track)
            break


def _wrap_in_phase(patches: Patches, owner: Any, name: str, lifecycle: Lifecycle, phase: Any) -> None:
    """Wrap a method so that the lifecycle is in ``phase`` while it runs."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def run_in_phase(self: Any, *args: Any, **kwargs: Any) -> Any:
        with lifecycle.during(phase, f"engine.{name}"):
            return original(self, *args, **kwargs)

    patches.set(owner, name, run_in_phase)


def _wrap_with_memory_category(patches: Patches, owner: Any, name: str, memory: MemoryRecord, category: str) -> None:
    """Wrap a method so that its allocations count under a memory category."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def call_with_category(*args: Any, **kwargs: Any) -> Any:
        with memory.with_category(category):
            return original(*args, **kwargs)

    patches.set(owner, name, call_with_category)


def _wrap_outside_modules(patches: Patches, owner: Any, name: str, memory: MemoryRecord) -> None:
    """Wrap a method so that its allocations are attributed to no module."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call_outside_modules(*args: Any, **kwargs: Any) -> Any:
        before, memory.module = memory.module, None
        try:
            return original(*args, **kwargs)
        finally:
            memory.module = before

    patches.set(owner, name, call_outside_modules)


def _categorise_gathered_parameters(
    patches: Patches, module: Any, lifecycle: Lifecycle, modules: ModuleTracker
) -> None:
    """Attribute gathered ZeRO-3 parameters to the category of parameters and to their own module.

    They are prefetched while an earlier module runs, and gathered for backward before the module is known to run.
    """
    owner = module.PartitionedParameterCoordinator
    _wrap_with_memory_category(patches, owner, "fetch_sub_module", lifecycle.memory, "parameters")
    fetch = owner.fetch_sub_module
    is_leaf = getattr(module, "z3_leaf_module", lambda submodule: False)

    @functools.wraps(fetch)
    def fetch_and_assign_owners(coordinator: Any, submodule: Any, *args: Any, **kwargs: Any) -> Any:
        result = fetch(coordinator, submodule, *args, **kwargs)
        assign_gathered_owners(submodule, modules, recurse=is_leaf(submodule))
        return result

    patches.set(owner, "fetch_sub_module", fetch_and_assign_owners)


def _categorise_reduction_buckets(
    patches: Patches, lifecycle: Lifecycle, name: str, category: str | None, module: Any
) -> None:
    """Don't attribute reduction buckets to the module whose backward happens to be running."""
    owner = getattr(module, name)
    for method in _PARTITION_METHODS:
        _wrap_with_memory_category(patches, owner, method, lifecycle.memory, "gradients")
    for method in dir(owner):
        reduces = "reduce" in method and any(word in method for word in ("ipg", "bucket", "grad"))
        if not callable(getattr(owner, method)):
            continue
        if reduces and category is not None:
            _wrap_with_memory_category(patches, owner, method, lifecycle.memory, category)
        if reduces or method == "setup_buckets":
            _wrap_outside_modules(patches, owner, method, lifecycle.memory)


def _categorise_weights(engine: Any, lifecycle: Lifecycle) -> None:
    """Count the model's weights as parameters, including frozen ones that were moved during the engine's creation."""
    for parameter in engine.module.parameters():
        for tensor in (parameter, getattr(parameter, "ds_tensor", None)):
            if isinstance(tensor, VirtualTensor):
                lifecycle.memory.recategorise(tensor.cell, "parameters")


def _categorise_weights_of_failed_engine(engine: Any, lifecycle: Lifecycle, modules: ModuleTracker) -> None:
    """Count the weights as parameters if the engine could not be created, so that its memory report is right too."""
    model = vars(engine).get("_modules", {}).get("module")
    if model is None:
        return
    modules.add_root(model)
    _categorise_weights(engine, lifecycle)
    assign_model_owners(model, modules)


def _skip_rank0_comparison(patches: Patches) -> None:
    """Skip ZeRO-3's comparison with rank 0 if rank 0 isn't rehearsed: each rank gets its own list as rank 0's.

    DeepSpeed broadcasts rank 0's list into a tensor of -1, and a rank that is rehearsed without rank 0 would take its
    own tensor to be what the root sends. As of deepspeed 0.19.8 (runtime/zero/utils.py).
    """
    patches.on_undo(after_import("deepspeed.runtime.zero.utils", lambda module: _replace_rank0_checks(patches, module)))


def _replace_rank0_checks(patches: Patches, module: Any) -> None:
    def get_lst_from_rank0(lst: list[int]) -> list[int]:
        device = torch.device(module.get_accelerator().device_name(os.environ["LOCAL_RANK"]))
        tensor = torch.tensor(lst, dtype=torch.int64, device=device)
        module.dist.broadcast(tensor, src=0, async_op=False)
        return [int(one) for one in tensor.cpu().tolist()]

    def assert_lst_len_same_as_other_ranks(lst: list[int]) -> None:
        theirs = get_lst_from_rank0([len(lst)])[0]
        if theirs != len(lst):
            rank = module.dist.get_rank()
            raise RuntimeError(
                f"Detected a disagreement on list length between rank0 and rank{rank}: \n rank0: {theirs} "
                f"\n rank{rank}: {len(lst)}"
            )

    for replaced in (get_lst_from_rank0, assert_lst_len_same_as_other_ranks):
        if hasattr(module, replaced.__name__):
            patches.set(module, replaced.__name__, replaced)


def defer_compile_passes() -> Callable[[], None]:
    """Defer the registration of DeepSpeed's compile passes until DeepCompile is first used; returns the undo.

    An engine registers its predefined passes when it is created, and imports TorchInductor for that, which takes
    longer than all the rest of ``deepspeed.initialize``. Only DeepCompile reads them, and it imports its backend
    first.
    """
    patches = Patches()
    waiting: list[Callable[[], object]] = []

    def register_all(_backend: Any) -> None:
        while waiting:
            waiting.pop(0)()

    patches.on_undo(
        after_import("deepspeed.runtime.engine", lambda module: _defer_registration(patches, module, waiting))
    )
    patches.on_undo(after_import(_BACKEND, register_all))
    return patches.undo


def _defer_registration(patches: Patches, module: Any, deferred_registrations: list[Callable[[], object]]) -> None:
    engine_class = module.DeepSpeedEngine
    register = getattr(engine_class, "register_compile_pass", None)
    if register is None or _BACKEND in sys.modules:  # up to DeepSpeed 0.18, importing the engine imports the backend
        return

    @functools.wraps(register)
    def register_or_defer(engine: Any, *args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_code
        predefined = caller.co_name == "__init__" and caller.co_filename == module.__file__
        if predefined and _BACKEND not in sys.modules:
            made = weakref.ref(engine)  # must not keep the engine alive
            deferred_registrations.append(lambda: register(made(), *args, **kwargs))
            return None
        return register(engine, *args, **kwargs)

    patches.set(engine_class, "register_compile_pass", register_or_defer)
