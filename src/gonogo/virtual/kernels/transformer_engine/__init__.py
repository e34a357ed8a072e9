"""Transformer Engine: its own Python runs (modules, autograd functions, quantizers); its compiled library does not.

What is kept for the backward, which workspaces are held and when, which attention is chosen: its Python says it.
``transformer_engine_torch``, its compiled module, is stood in for (:mod:`.module`), with outputs of the shapes
and dtypes that its C++ gives and what it allocates on the way. The wheel ``transformer_engine`` on PyPI is that Python,
for any machine; it refuses to be imported where the libraries are missing that its other parts bring.

FP8 is covered in delayed, current and block scaling and MXFP8, for products, norms and activations; attention in FP8,
NVFP4 and products that overlap with communication are not: asked for, they say so. Read in
transformer_engine/pytorch/csrc of 2.6 to 2.18; tried with 2.17.1.
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

from gonogo.finding import Text
from gonogo.virtual.kernels.flops import Computed, ignore_flops
from gonogo.virtual.kernels.transformer_engine.compiled_functions import ASSUMED
from gonogo.virtual.kernels.transformer_engine.module import NAME, make_module
from gonogo.virtual.kernels.transformer_engine.quantized import memory_of
from gonogo.virtual.patching.after_import import after_import, import_within
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor, meta_device

_BACKEND_SELECTION_MODULE = "transformer_engine.pytorch.attention.dot_product_attention.utils"
_WRAPPERS = ("transformer_engine.pytorch.quantized_tensor", "transformer_engine.pytorch.tensor.quantized_tensor")
"""Where the class of tensors in FP8 is, in newer releases and older."""
_BUILDING, _RELEASE = "NVTE_PROJECT_BUILDING", "NVTE_RELEASE_BUILD"


def install(
    patches: Patches,
    written: Callable[[torch.Tensor], object],
    assume: Callable[[Text], object],
    compute_capability: tuple[int, int],
    count_flops: Computed = ignore_flops,
) -> None:
    """Have Transformer Engine's Python find its compiled module once the program imports it."""
    patches.on_undo(import_within("transformer_engine.common", _library_loading_disabled))
    module = make_module(written, assume, compute_capability, count_flops)

    def replace_loader(common: ModuleType) -> None:
        def load_framework_extension(framework: str) -> None:
            if framework != "torch":
                raise FileNotFoundError(f"Could not find shared object file for Transformer Engine {framework} lib.")
            assume(ASSUMED)
            patches.item(sys.modules, NAME, module)

        patches.set(common, "load_framework_extension", load_framework_extension)

    patches.on_undo(after_import("transformer_engine.common", replace_loader))
    for name in _WRAPPERS:
        patches.on_undo(after_import(name, functools.partial(_use_meta_device, patches)))
    patches.on_undo(after_import(_BACKEND_SELECTION_MODULE, functools.partial(_report_plain_tensor_type, patches)))


def _use_meta_device(patches: Patches, module: ModuleType) -> None:
    """A tensor in FP8 wraps its bytes, and tells C++ a device: of virtual ones that is what C++ is told of the bytes.

    An accelerator that this build of torch may not know would end the process in autograd.
    """
    kind = module.QuantizedTensor
    new = kind.__new__

    def make(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        asked = torch.empty(0, device="cuda" if device is None else device).device
        on_host = asked.type == "cpu"
        return new(cls, *args, device=asked if on_host else meta_device(asked), **kwargs)

    def of_bytes(name: str) -> property:
        return property(lambda tensor: getattr(memory_of(tensor)[0], name))

    patches.set(kind, "__new__", staticmethod(make))
    for name in ("device", "is_cuda"):  # newer releases have their own, which come first
        patches.set(kind, name, of_bytes(name))


def _report_plain_tensor_type(patches: Patches, module: ModuleType) -> None:
    """Attention is chosen by the very class of the queries: a virtual tensor's is as good as ``torch.Tensor``."""
    parameters = getattr(module, "AttentionParams", None)
    if parameters is None or "qkv_type" not in getattr(parameters, "__dataclass_fields__", {}):
        return
    init = parameters.__init__

    @functools.wraps(init)
    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if issubclass(self.qkv_type, VirtualTensor):
            self.qkv_type = torch.Tensor

    patches.set(parameters, "__init__", initialise)


@contextlib.contextmanager
def _library_loading_disabled() -> Iterator[None]:
    """As while it is being built: no library of CUDA's or of its own is loaded, and none is missed."""
    before = {name: os.environ.pop(name, None) for name in (_BUILDING, _RELEASE)}
    os.environ[_BUILDING] = "1"
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
