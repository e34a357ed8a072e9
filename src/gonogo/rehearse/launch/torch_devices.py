"""Answers torch's questions about the machine (is there a GPU, how many, which) for the virtual one.

Used only in the process that runs a launcher's own code (``capture.py``), never in a worker.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from gonogo.rehearse.launch.launch import LaunchMachine
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches


def _patch_op_builder(builder: Any) -> None:
    """Report all DeepSpeed kernels as compatible; it checks them at import against this machine's CUDA toolkit."""

    def is_compatible(self: object, verbose: bool = False) -> bool:
        return True

    def init_subclass(cls: type, /, **_options: Any) -> None:
        if "is_compatible" in vars(cls):
            cls.is_compatible = is_compatible  # type: ignore[attr-defined]

    base = builder.OpBuilder
    base.is_compatible, base.__init_subclass__ = is_compatible, classmethod(init_subclass)
    for cls in base.__subclasses__():
        init_subclass(cls)


@contextlib.contextmanager
def with_virtual_devices(surroundings: LaunchMachine) -> Iterator[None]:
    """Let torch report the devices of the virtual machine.

    The count follows the current environment variables, as CUDA's does before it is initialized.
    """
    torch = importlib.import_module("torch")
    from gonogo.virtual.kernels import torchvision, triton  # these import torch, so import them only now

    def visible_device_count() -> int:
        return surroundings.visible_count(os.environ)

    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: visible_device_count() > 0,
        "device_count": visible_device_count,
        "set_device": lambda device: None,
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: surroundings.product,
        "get_device_capability": lambda device=None: surroundings.compute_capability,
        "is_bf16_supported": lambda including_emulation=True: (
            surroundings.device_type == "npu" or surroundings.compute_capability >= (8, 0)
        ),
    }
    device = SimpleNamespace(type=surroundings.device_type, index=None)
    with contextlib.ExitStack() as stack:
        patches = Patches()
        stack.callback(patches.undo)
        torchvision.install(patches, lambda what: None)
        if surroundings.device_type == "cuda":
            for name, answer in answers.items():
                stack.enter_context(patch.object(torch.cuda, name, answer))
            # Frameworks' command lines import it by name if there is a GPU.
            stack.enter_context(patch.object(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, create=True))
            # A kernel's decorator asks Triton's driver for the GPU, and the driver looks for libcuda.
            triton.install(patches, lambda _: None, lambda _: None, surroundings.compute_capability)
            for name in ("deepspeed.ops.op_builder.builder", "op_builder.builder"):
                stack.callback(after_import(name, _patch_op_builder))
        else:
            # torch_npu adds this module to torch and registers its name, which --nproc_per_node accepts.
            stack.enter_context(patch.object(torch, surroundings.device_type, SimpleNamespace(**answers), create=True))
            backend = stack.enter_context(patch.object(torch._C, "_get_privateuse1_backend_name"))
            backend.return_value = surroundings.device_type
            run = importlib.import_module("torch.distributed.run")
            stack.enter_context(patch.object(run, "_get_custom_mod_func", answers.__getitem__))
        accelerator = getattr(torch, "accelerator", None)
        if accelerator is not None:  # new in torch 2.6
            stack.enter_context(patch.object(accelerator, "is_available", answers["is_available"]))
            stack.enter_context(patch.object(accelerator, "device_count", visible_device_count))
            stack.enter_context(patch.object(accelerator, "current_accelerator", lambda *_args, **_kwargs: device))
        yield
