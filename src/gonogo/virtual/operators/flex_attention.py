"""``flex_attention`` under ``torch.compile``: the fused kernel's results and what it keeps, without its scores.

The memory follows torch/_inductor/kernel/flex/flex_attention.py: the forward kernel gives the output, with the query's
order of dimensions, and two statistics in float32 for each query; the backward kernel takes one number more for each
query, and gives the gradients. Selective checkpointing is asked about the operator itself, as it is in a real run.

Called without ``torch.compile``, torch keeps all scores, several times: that is rejected. ``create_block_mask`` keeps
the whole mask only if it isn't compiled. Which blocks a mask leaves out is unknown, so the kernel's operations are
those of all blocks.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch.utils import checkpoint

from gonogo.finding import Text, translated
from gonogo.virtual import private
from gonogo.virtual.kernels.flops import Computed, attention_flops
from gonogo.virtual.operators.compiling import CompiledRegion
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.unsupported import UnsupportedOperator

_MODULE = "torch.nn.attention.flex_attention"
_WHAT = "torch's flex_attention"
_UNCOMPILED = translated(
    "without torch.compile, flex_attention keeps all attention scores, which a rehearsal does not cover"
)
_OF_TENSOR_CLASS = translated("flex_attention's operands are tensor subclasses, which a rehearsal does not cover")
_ASSUMED = translated(
    "flex_attention compiles to its fused kernel; its mask function isn't run, so the blocks that it skips are unknown"
)
_DEFAULT_BLOCK = 128


def install(assume: Callable[[Text], object], computed: Computed) -> Callable[[], None]:
    """Take the kernel's place for accelerator tensors; returns the undo."""
    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
    patches = Patches()
    patches.on_undo(after_import(_MODULE, functools.partial(_patch_flex_attention, patches, assume, computed)))
    return patches.undo


def _patch_flex_attention(
    patches: Patches, assume: Callable[[Text], object], computed: Computed, module: ModuleType
) -> None:
    own: Any = module
    attention, block_mask, operator = own.flex_attention, own.create_block_mask, own.flex_attention_hop
    with_maxima = hasattr(module, "AuxRequest")

    @functools.wraps(attention)
    def flex_attention(*args: Any, **kwargs: Any) -> Any:
        if is_on_accelerator(args, kwargs) and not CompiledRegion.is_running():
            raise UnsupportedOperator(_WHAT, _UNCOMPILED)
        return attention(*args, **kwargs)

    def run_flex_attention_hop(query: Any, key: Any, value: Any, score_mod: Any, mask: Any, *options: Any) -> Any:
        if not is_on_accelerator((query,), {}):
            return operator(query, key, value, score_mod, mask, *options)
        if not all(isinstance(one, VirtualTensor) for one in (query, key, value)):
            raise UnsupportedOperator(_WHAT, _OF_TENSOR_CLASS)
        assume(_ASSUMED)
        tensors = [one for one in mask if isinstance(one, torch.Tensor)]
        out, sums, maxima = _Attention.apply(computed, query, key, value, *tensors)  # type: ignore[no-untyped-call]
        return (out, sums, maxima) if with_maxima else (out, sums)

    @functools.wraps(block_mask)
    def create_block_mask(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(block_mask).bind(*args, **kwargs)
        given.apply_defaults()
        if given.arguments["device"] is None:  # from torch 2.9 on, the default
            given.arguments["device"] = torch.accelerator.current_accelerator() or "cpu"
        if torch.device(given.arguments["device"]).type == "cpu":
            return block_mask(*args, **kwargs)
        assume(_ASSUMED)
        return _block_mask(own, given.arguments)

    patches.set(module, "flex_attention", flex_attention)
    patches.set(module, "flex_attention_hop", run_flex_attention_hop)
    patches.set(module, "create_block_mask", create_block_mask)


def _block_mask(module: Any, given: dict[str, Any]) -> Any:
    """A BlockMask as ``create_block_mask`` makes it, of unknown blocks."""
    size = given["BLOCK_SIZE"]
    rows, columns = (size, size) if isinstance(size, int) else size
    places = (given["B"] or 1, given["H"] or 1)
    lengths = (given["Q_LEN"], given["KV_LEN"])
    device = given["device"]
    whole = None
    if not (given.get("_compile") or CompiledRegion.is_running()):
        whole = torch.empty((*places, *lengths), dtype=torch.bool, device=device)
    blocks = (*places, math.ceil(lengths[0] / rows), math.ceil(lengths[1] / columns))
    partial, full = (torch.empty(blocks, dtype=torch.int8, device=device) for _ in range(2))
    del whole
    make = module._create_sparse_block_from_block_mask
    more = (lengths,) if "seq_lengths" in inspect.signature(make).parameters else ()
    return make((partial, full), given["mask_mod"], *more, rows, columns)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, computed: Computed, query: Any, key: Any, value: Any, *mask: torch.Tensor) -> Any:
        out, sums, maxima = _run_under_selective_checkpointing(computed, query, key, value)
        ctx.computed = computed
        ctx.mark_non_differentiable(maxima)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(query, key, value, out, sums, maxima, *mask)
        return out, sums, maxima

    @staticmethod
    def backward(ctx: Any, grad_out: Any, *_of_statistics: Any) -> Any:
        query, key, value, _, sums, *others = ctx.saved_tensors
        products = torch.empty_like(sums)
        _count_attention_flops(ctx.computed, query, key, value, backward=True)
        grads = [torch.empty_like(one) for one in (query, key, value)]
        del products
        return (None, *grads, *([None] * (len(others) - 1)))


def _run_under_selective_checkpointing(computed: Computed, *operands: torch.Tensor) -> Any:
    """Run the kernel as the innermost mode of selective checkpointing wants it: saved, taken, or run again."""
    kernel = _make_kernel_operator(computed)
    modes: list[Any] = [mode for mode in private.dispatch_modes() if isinstance(mode, _CHECKPOINTING)]
    return modes[-1].__torch_dispatch__(kernel, (), operands, {}) if modes else kernel(*operands)


_CHECKPOINTING: tuple[type, ...] = tuple(
    getattr(checkpoint, name)
    for name in ("_CachingTorchDispatchMode", "_CachedTorchDispatchMode")
    if hasattr(checkpoint, name)
)


@functools.cache
def _make_kernel_operator(computed: Computed) -> Any:
    from torch._higher_order_ops.flex_attention import flex_attention as operator

    class Kernel(type(operator).__base__):  # type: ignore[misc]
        """What a policy of selective checkpointing takes for torch's operator: it is in the program's list."""

        def __init__(self) -> None:
            super().__init__("gonogo_flex_attention")

        def __hash__(self) -> int:
            return hash(operator)

        def __eq__(self, other: object) -> bool:
            return other is self or other is operator

        def __call__(self, query: Any, key: Any, value: Any) -> Any:
            batch, heads, length, _ = query.shape
            order = sorted(range(query.dim()), key=lambda dim: (-query.stride(dim), dim))
            shape = (batch, heads, length, value.shape[-1])
            out = torch.empty_permuted(shape, order, dtype=query.dtype, device=query.device)
            statistics = [torch.empty(shape[:3], dtype=torch.float32, device=query.device) for _ in range(2)]
            _count_attention_flops(computed, query, key, value)
            return (out, *statistics)

    return Kernel()


def _count_attention_flops(computed: Computed, query: Any, key: Any, value: Any, *, backward: bool = False) -> None:
    batch, heads, length, size = query.shape
    lengths = [(length, key.shape[2])] * batch
    flops = attention_flops(heads, lengths, size, value.shape[-1], backward=backward)
    computed(flops, *(query, key, value, query) * (1 + backward), kind="attention")


def is_on_accelerator(args: Any, kwargs: dict[str, Any]) -> bool:
    """True if a tensor in the arguments is on an accelerator."""
    tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
    return any(tensor.device.type not in ("cpu", "meta") for tensor in tensors)
