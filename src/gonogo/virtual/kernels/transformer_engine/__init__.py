"""Transformer Engine: its own Python code runs (modules, autograd functions, quantizers), but not its library.

The Python code decides what is kept for the backward, which workspaces are held and when, and which attention is
chosen. Its compiled module ``transformer_engine_torch`` is replaced by a stand-in (:mod:`.module`), whose outputs
have the shapes and dtypes of the C++ code and which makes the same temporary allocations. The wheel
``transformer_engine`` on PyPI contains this Python code for any machine, but its import fails without the libraries
of its other parts.

FP8 is covered with delayed, current and block scaling and MXFP8, for matmuls, norms and activations; FP8 attention,
NVFP4 and matmuls that overlap with communication are not, and raise an error. Based on
transformer_engine/pytorch/csrc of 2.6 to 2.18; tested with 2.17.1.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from gonogo.virtual.kernels.flops import Computed, ignore_flops
from gonogo.virtual.kernels.transformer_engine.compiled_functions import ASSUMED
from gonogo.virtual.kernels.transformer_engine.module import NAME, make_module
from gonogo.virtual.kernels.transformer_engine.quantized import stored_tensors
from gonogo.virtual.patching.after_import import after_import, import_within
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor, meta_device
from gonogo.virtual.values.assumptions import Assume

_BACKEND_SELECTION_MODULE = "transformer_engine.pytorch.attention.dot_product_attention.utils"
_QUANTIZED_TENSOR_MODULES = (
    "transformer_engine.pytorch.quantized_tensor",
    "transformer_engine.pytorch.tensor.quantized_tensor",
)
"""The modules that define the FP8 tensor class, in newer and older releases."""
_BUILDING, _RELEASE = "NVTE_PROJECT_BUILDING", "NVTE_RELEASE_BUILD"


def install(
    patches: Patches,
    written: Callable[[torch.Tensor], object],
    assume: Assume,
    compute_capability: tuple[int, int],
    count_flops: Computed = ignore_flops,
) -> None:
    """Make Transformer Engine's Python code find the stand-in for its compiled module."""
    patches.on_undo(import_within("transformer_engine.common", _library_loading_disabled))
    module = make_module(written, assume, compute_capability, count_flops)

    def replace_loader(common: ModuleType) -> None:
        def load_framework_extension(framework: str) -> None:
            if framework != "torch":
                raise FileNotFoundError(f"Could not find shared object file for Transformer Engine {framework} lib.")
            assume(ASSUMED)
            patches.set_item(sys.modules, NAME, module)

        patches.set(common, "load_framework_extension", load_framework_extension)

    patches.on_undo(after_import("transformer_engine.common", replace_loader))
    for name in _QUANTIZED_TENSOR_MODULES:
        patches.on_undo(after_import(name, functools.partial(_use_meta_device, patches)))
    patches.on_undo(after_import(_BACKEND_SELECTION_MODULE, functools.partial(_report_plain_tensor_type, patches)))


def _use_meta_device(patches: Patches, module: ModuleType) -> None:
    """Create FP8 tensors, which wrap their bytes, with the device that C++ sees for virtual bytes: meta.

    A device type unknown to this build of torch would crash the process in autograd.
    """
    kind = module.QuantizedTensor
    new = kind.__new__

    def new_on_meta_device(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        requested = torch.empty(0, device="cuda" if device is None else device).device
        on_host = requested.type == "cpu"
        return new(cls, *args, device=requested if on_host else meta_device(requested), **kwargs)

    def data_buffer_property(name: str) -> property:
        return property(lambda tensor: getattr(stored_tensors(tensor)[0], name))

    patches.set(kind, "__new__", staticmethod(new_on_meta_device))
    for name in ("device", "is_cuda"):  # newer releases define these, which would take precedence
        patches.set(kind, name, data_buffer_property(name))


def _report_plain_tensor_type(patches: Patches, module: ModuleType) -> None:
    """Report virtual queries as ``torch.Tensor``, because the attention backend is chosen by their exact class."""
    parameters = getattr(module, "AttentionParams", None)
    if parameters is None or "qkv_type" not in getattr(parameters, "__dataclass_fields__", {}):
        return
    init = parameters.__init__

    @functools.wraps(init)
    def init_with_plain_type(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if issubclass(self.qkv_type, VirtualTensor):
            self.qkv_type = torch.Tensor

    patches.set(parameters, "__init__", init_with_plain_type)


@contextlib.contextmanager
def _library_loading_disabled() -> Iterator[None]:
    """Set the variables of Transformer Engine's own build, during which it loads no CUDA or own libraries."""
    before = {name: os.environ.pop(name, None) for name in (_BUILDING, _RELEASE)}
    os.environ[_BUILDING] = "1"
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
