"""Installs stand-ins for compiled kernels other than DeepSpeed's: bitsandbytes, flash-attn, Triton and others."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from gonogo.finding import translated
from gonogo.virtual import private
from gonogo.virtual.kernels import (
    apex,
    bitsandbytes,
    flash_attention,
    nvrtc,
    torchaudio,
    torchvision,
    transformer_engine,
    triton,
)
from gonogo.virtual.kernels.flops import Computed
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.values.assumptions import Assume

_STAND_INS_PATH = str(Path(__file__).parent.parent / "stand_ins")
"""Python code of packages that can't be installed without a CUDA compiler, with their metadata."""
_XFORMERS_PATH = str(Path(_STAND_INS_PATH) / "with_xformers")
"""In a separate folder, because it is used only if the run may have xFormers."""
_PYTHON_OPERATOR_NAMESPACES = ("flash_attn", "deepspeed", "autotp", "autosp")
"""Operator namespaces whose Python functions show more than their fake kernels: memory and collectives."""


_FLASH_ATTENTION_ASSUMPTION = translated("flash-attn's compiled kernels load on the machine")
_XFORMERS_ASSUMPTION = translated("xFormers 0.0.33 is installed on the machine")


def install(
    namespaces: dict[str, Any],
    written: Callable[[torch.Tensor], object],
    assume: Assume,
    compute_capability: tuple[int, int],
    count_flops: Computed,
    counting_in_place: Callable[[], AbstractContextManager[object]],
    missing_modules: Collection[str] = (),
) -> Callable[[], None]:
    """Install stand-ins of all kernel libraries; returns the undo. ``namespaces``: the dispatch mode's handlers.

    ``count_flops`` is called with the work of each kernel; ``counting_in_place`` is the context in which operators are
    counted instead of the custom operator that runs them; ``missing_modules``: packages that the run certainly
    lacks.
    """
    patches = Patches()
    bitsandbytes.install(patches, namespaces, written, assume)
    triton.install(patches, written, assume, compute_capability)
    nvrtc.install(patches, written, assume)
    torchvision.install(patches, assume)
    torchaudio.install(patches, assume)
    apex.install(patches, written, assume, count_flops)
    transformer_engine.install(patches, written, assume, compute_capability, count_flops)
    installed = find_spec("flash_attn") is not None
    assumed = _FLASH_ATTENTION_ASSUMPTION if installed else flash_attention.ASSUMED
    kernels = flash_attention.FlashAttention(
        written, functools.partial(assume, kind="flash_attention"), compute_capability, assumed, count_flops
    )
    patches.set_item(sys.modules, "flash_attn_2_cuda", kernels)
    if find_spec("xformers") is None and "xformers" not in missing_modules:
        own = flash_attention.FlashAttention(written, assume, compute_capability, _XFORMERS_ASSUMPTION, count_flops)
        patches.set_item(sys.modules, "xformers._C_flashattention", own)
        sys.path.append(_XFORMERS_PATH)
        patches.on_undo(lambda: sys.path.remove(_XFORMERS_PATH))
    for namespace in _PYTHON_OPERATOR_NAMESPACES:
        patches.set_item(namespaces, namespace, functools.partial(_run_in_python, counting_in_place))
    if not installed:
        sys.path.append(_STAND_INS_PATH)
        patches.on_undo(lambda: sys.path.remove(_STAND_INS_PATH))
    return patches.undo


def _run_in_python(
    counting_in_place: Callable[[], AbstractContextManager[object]],
    mode: Any,
    func: Any,
    args: Any,
    kwargs: dict[str, Any],
) -> Any:
    """Run a custom operator through its Python function, whose compiled part is replaced by a stand-in."""
    function = private.custom_operator(func._schema.name)
    if function is None:
        return mode.run(mode.operator(func), args, kwargs)
    with mode, counting_in_place():
        return function(*args, **kwargs)
