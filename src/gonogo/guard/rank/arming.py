"""Decides which processes of a guarded command are ranks, and from when on: every Python process runs this.

A process with ``RANK`` and ``LOCAL_RANK`` counts as a rank from its start; any other becomes one when it joins a
process group, creates a DeepSpeed engine or runs a Trainer. Nothing heavy is imported before that.
"""

from __future__ import annotations

import os
import sys

from gonogo.virtual.patching.after_import import after_import

TYPE_CHECKING = False  # without importing typing: every Python process runs this
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

WORKER = "GONOGO_GUARD_WORKER"  # as injection.WORKER, which is not imported in processes that may not be ranks
_LAUNCHER_PROGRAMS = (
    "torchrun",
    "deepspeed",
    "ds",
    "accelerate",
    "swift",
    "megatron",
    "llamafactory-cli",
    "axolotl",
    "ray",
)
_LAUNCHING_MODULES = ("torch.distributed.run", "torch.distributed.launch", "deepspeed.launcher", "accelerate.commands")
_HOOKED_MODULES = (
    "torch.distributed.distributed_c10d",
    "torch.optim.optimizer",
    "torch.utils.data.dataloader",
    "torch.nn.parallel.distributed",
    "torch.distributed.fsdp.fully_sharded_data_parallel",
    "deepspeed.runtime.engine",
    "deepspeed.runtime.pipe.engine",
    "transformers.trainer",
    "torch.utils.tensorboard.writer",
    "tensorboardX.writer",
    "wandb.sdk.wandb_run",
    "swanlab.sdk.internal.run",
)


def arm(folder: str) -> None:
    """Have the guard start in this process as soon as it turns out to be a rank of the training."""
    if WORKER in os.environ and os.environ[WORKER] != str(os.getpid()):
        return  # started by a rank: a data loader's worker, a compiler
    launcher = is_launcher(sys.orig_argv)
    if not launcher and "RANK" in os.environ and "LOCAL_RANK" in os.environ:
        os.environ[WORKER] = str(os.getpid())  # a rank that re-executes itself stays one
        from gonogo.guard.rank.worker import prepare_guard

        prepare_guard(folder, is_rank=True)
    else:
        from gonogo.guard.launcher import watch_children

        watch_children(folder)
        if not launcher:
            # Before torch is imported, there is nothing for the guard to record.
            after_import("torch", lambda module: _prepare_guard(folder))
    hook_imports()


def _prepare_guard(folder: str) -> None:
    from gonogo.guard.rank.worker import prepare_guard

    prepare_guard(folder, is_rank=False)


def hook_imports() -> None:
    """Register the guard's hooks, each to be set as soon as its module is imported."""
    for name in _HOOKED_MODULES:
        after_import(name, _import_hook_for(name))


def _import_hook_for(name: str) -> Callable[[ModuleType], None]:
    def hook_loaded_module(module: ModuleType) -> None:
        from gonogo.guard.rank.hooks import hook_module

        hook_module(name, module)

    return hook_loaded_module


def is_launcher(command: list[str]) -> bool:
    """Whether a Python command line runs a launcher, which may have its node's ``RANK`` in the environment."""
    words = command[1:]
    for index, word in enumerate(words[:8]):
        if word == "-m":
            return words[index + 1 : index + 2] != [] and words[index + 1].startswith(_LAUNCHING_MODULES)
        if not word.startswith("-"):
            return os.path.basename(word) in _LAUNCHER_PROGRAMS
    return False
