"""Ends Megatron-LM's training loop through its own iteration count; accounts for Megatron-Core's gradient buffers."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from gonogo.finding import Text, translated
from gonogo.virtual.hooks.lifecycle import EVALUATION_BATCHES, Lifecycle
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor

_EVALUATION_FUNCTIONS = ("evaluate_and_print_results", "evaluate")
_DATA_LOADERS_BUILDER = "build_train_valid_test_data_loaders"
_DATA_ASSUMPTION = translated("the first rank of the tensor-parallel group has training and evaluation data")
_SAMPLE_COUNTS = "get_train_valid_test_num_samples"
_MAX_INDEXED_SAMPLES = 1 << 20
_INDEX_ASSUMPTION = translated(
    "the data index for {wanted} samples fits into host memory: the rehearsal built it for "
    "{made} samples, and does not count its memory"
)
_CHECKPOINT_VALIDATION = "megatron.core.dist_checkpointing.validation"
_VALIDATE_PARTS = "validate_sharding_integrity"
_PARTS_ASSUMPTION = translated(
    "the ranks' checkpoint shards cover each tensor exactly once: this is checked only if all ranks are rehearsed"
)
_SAVE_FUNCTIONS = ("save_checkpoint", "save_checkpoint_and_time")


def install(lifecycle: Lifecycle, *, all_ranks_rehearsed: bool = True) -> Callable[[], None]:
    """Make the loop stop after the requested steps, so that evaluation, test and save are run; returns the undo."""
    patches = Patches()
    if not all_ranks_rehearsed:
        patches.on_undo(after_import(_CHECKPOINT_VALIDATION, functools.partial(_skip_checkpoint_validation, patches)))
    patches.on_undo(after_import("megatron.training.training", functools.partial(_patch_train, patches, lifecycle)))
    buffers = functools.partial(_categorise_buffers, patches, lifecycle)
    patches.on_undo(after_import("megatron.core.distributed.param_and_grad_buffer", buffers))
    return patches.undo


def _skip_checkpoint_validation(patches: Patches, module: Any) -> None:
    """Leave out the comparison of the ranks' parts of a checkpoint: those of ranks that don't run aren't known."""
    if not callable(getattr(module, _VALIDATE_PARTS, None)):
        return

    @functools.wraps(getattr(module, _VALIDATE_PARTS))
    def skip_validation(*_args: Any, **_kwargs: Any) -> None:
        VirtualTensor.virtual_mode.ledger.assume(_PARTS_ASSUMPTION)

    patches.set(module, _VALIDATE_PARTS, skip_validation)


def _patch_train(patches: Patches, lifecycle: Lifecycle, module: Any) -> None:
    train = getattr(module, "train", None)
    if train is None or not hasattr(module, "get_args"):
        return

    @functools.wraps(train)
    def train_until_target(*args: Any, **kwargs: Any) -> Any:
        settings = module.get_args()
        began = getattr(settings, "iteration", None) or 0
        last = getattr(settings, "train_iters", None)
        if isinstance(last, int):
            settings.train_iters = min(last, began + lifecycle.target)
        if isinstance(getattr(settings, "eval_iters", None), int):
            settings.eval_iters = min(settings.eval_iters, EVALUATION_BATCHES)
            lifecycle.counts_evaluation = True  # each iteration reads as many batches as a step has micro-batches
        if getattr(settings, "save", None):
            lifecycle.expect_phases("save")
        return train(*args, **kwargs)

    patches.set(module, "train", train_until_target)
    if callable(getattr(module, _DATA_LOADERS_BUILDER, None)):
        patches.set(
            module, _DATA_LOADERS_BUILDER, _wrap_data_provider(getattr(module, _DATA_LOADERS_BUILDER), module.get_args)
        )
    if callable(getattr(module, _SAMPLE_COUNTS, None)):
        counts = getattr(module, _SAMPLE_COUNTS)
        assume = VirtualTensor.virtual_mode.ledger.assume
        patches.set(module, _SAMPLE_COUNTS, _wrap_dataset_builder(counts, module.get_args, assume))
    for phase, names in (("evaluate", _EVALUATION_FUNCTIONS), ("save", _SAVE_FUNCTIONS)):
        for name in names:
            if callable(getattr(module, name, None)):
                patches.set(module, name, _wrap_in_phase(lifecycle, phase, getattr(module, name)))


def _wrap_dataset_builder(
    original: Callable[..., Any], get_args: Callable[[], Any], assume: Callable[[Text], object]
) -> Callable[..., Any]:
    """Have the index of the data made for no more samples than a rehearsal may reach.

    It is an array in host memory as long as the whole training, which this machine may not have room for.
    """

    @functools.wraps(original)
    def build_with_fewer_samples(*args: Any, **kwargs: Any) -> Any:
        settings = get_args()
        batch = getattr(settings, "global_batch_size", None) or 0
        consumed = max(
            getattr(settings, "consumed_train_samples", None) or 0, (getattr(settings, "iteration", None) or 0) * batch
        )
        limit = consumed + _MAX_INDEXED_SAMPLES
        found = original(*args, **kwargs)
        most = max((count for count in found if count is not None), default=0)
        if most <= limit:
            return found
        assume(_INDEX_ASSUMPTION.format(wanted=f"{most:,}", made=f"{limit:,}"))
        return tuple(count if count is None else min(count, limit) for count in found)

    return build_with_fewer_samples


def _wrap_data_provider(original: Callable[..., Any], get_args: Callable[[], Any]) -> Callable[..., Any]:
    """Make a rank without data train and evaluate like the rank of its tensor-parallel group that has the data.

    Only the first rank of a tensor-parallel group reads data; rank 0 tells the others whether there is any. If rank 0
    isn't rehearsed, the others would keep their own flags, which say no.
    """

    @functools.wraps(original)
    def provide_and_set_data_flags(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        settings = get_args()
        if found[0] is not None or _tensor_parallel_rank() == 0:
            return found
        evaluates = bool(getattr(settings, "full_validation", False) or getattr(settings, "eval_iters", 0))
        trains = bool(getattr(settings, "train_iters", 0)) and not getattr(settings, "skip_train", False)
        has_data = {"do_train": trains, "do_valid": evaluates, "do_test": evaluates}
        for name, value in has_data.items():
            if value and not getattr(settings, name, False):
                VirtualTensor.virtual_mode.ledger.assume(_DATA_ASSUMPTION)
                setattr(settings, name, True)
        return found

    return provide_and_set_data_flags


def _tensor_parallel_rank() -> int:
    state: Any = sys.modules.get("megatron.core.parallel_state")
    try:
        return int(state.get_tensor_model_parallel_rank())
    except (AttributeError, AssertionError):
        return 0


def _wrap_in_phase(lifecycle: Lifecycle, phase: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run_in_phase(*args: Any, **kwargs: Any) -> Any:
        with lifecycle.during(phase, f"Megatron's {original.__name__}"):
            return original(*args, **kwargs)

    return run_in_phase


def _categorise_buffers(patches: Patches, lifecycle: Lifecycle, module: Any) -> None:
    buffer = getattr(module, "_ParamAndGradBuffer", None)
    if buffer is None:
        return
    init = buffer.__init__

    @functools.wraps(init)
    def init_and_categorise(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        for name, category in (("param_data", "parameters"), ("grad_data", "gradients")):
            data = getattr(self, name, None)
            if isinstance(data, VirtualTensor):
                lifecycle.memory.recategorise(data.cell, category)

    patches.set(buffer, "__init__", init_and_categorise)
