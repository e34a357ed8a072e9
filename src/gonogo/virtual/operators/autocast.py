"""``torch.autocast`` on an accelerator.

ATen's autocast checks whether a tensor is on CUDA, but for C++ virtual tensors are on ``meta``. So casts are done
here, above autograd, with the same operator lists (aten/src/ATen/autocast_mode.h) and the same cache of cast weights,
which takes memory.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from packaging.version import Version
from torch.nn import _reduction, functional
from torch.overrides import TorchFunctionMode

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor

LOWER_PRECISION_FUNCTIONS = {
    "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "convolution", "_convolution", "prelu", "addmm", "addmv", "addr", "matmul", "__matmul__", "__rmatmul__", "einsum",
    "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul", "multi_dot", "lstm_cell",
    "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "scaled_dot_product_attention",
    "lstm", "gru", "rnn_tanh", "rnn_relu",  # cuDNN RNNs: aten/src/ATen/cudnn/AutocastRNN.cpp
}  # fmt: skip
FLOAT32_FUNCTIONS = {
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow", "__pow__", "__rpow__", "softplus", "layer_norm", "native_layer_norm", "group_norm",
    "nuclear_norm", "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss",
    "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss",
    "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss",
    "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp", "interpolate", "upsample",
    "prod", "softmax", "log_softmax", "softmin", "cumprod", "cumsum", "linalg_vector_norm", "linalg_matrix_norm",
    "norm", "sum", "gelu_backward",
}  # fmt: skip
if Version(torch.__version__) >= Version("2.12"):  # https://github.com/pytorch/pytorch/pull/174824
    FLOAT32_FUNCTIONS.add("rms_norm")
WIDEST_DTYPE_FUNCTIONS = {
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sample", "index_put", "tensordot",
          "scatter_add"}  # fmt: skip
_AUTOCAST_FUNCTIONS = LOWER_PRECISION_FUNCTIONS | FLOAT32_FUNCTIONS | WIDEST_DTYPE_FUNCTIONS
_IN_PYTHON = ("torch.nn.functional", "torch.functional")
_MODE_CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
# Raises an error on CUDA, whatever the dtypes.
BANNED_ON_CUDA = "binary_cross_entropy"
_BANNED_MESSAGE = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\nMany models use a sigmoid "
    "layer right before the binary cross entropy layer.\nIn this case, combine the two layers using "
    "torch.nn.functional.binary_cross_entropy_with_logits\nor torch.nn.BCEWithLogitsLoss.  "
    "binary_cross_entropy_with_logits and BCEWithLogits are\nsafe to autocast."
)


def install() -> Callable[[], None]:
    """Cast virtual tensors inside ``torch.autocast`` for an accelerator; returns the undo."""
    patches = Patches()
    autocast: Any = torch.amp.autocast_mode.autocast
    enter, leave = autocast.__enter__, autocast.__exit__

    @functools.wraps(enter)
    def push_mode_and_enter(self: Any) -> Any:
        result = enter(self)
        within = bool(_AutocastMode.entered)
        if self.device != "cpu" and (self._enabled or within):
            mode: Any = _AutocastMode(self.fast_dtype if self._enabled else None, self.device)
            mode.__enter__()
            self.__dict__.setdefault("gonogo_modes", []).append(mode)
            _AutocastMode.entered.append(mode)
        return result

    @functools.wraps(leave)
    def pop_mode_and_exit(self: Any, *exception: Any) -> Any:
        modes = self.__dict__.get("gonogo_modes")
        if modes:
            modes.pop().__exit__(*exception)
            _AutocastMode.entered.pop()
        return leave(self, *exception)

    patches.set(autocast, "__enter__", push_mode_and_enter)
    patches.set(autocast, "__exit__", pop_mode_and_exit)
    return patches.undo


class _AutocastMode(TorchFunctionMode):
    """Casts the operands of listed functions. ``dtype`` is None if autocast is disabled inside an enabled one."""

    entered: ClassVar[list[_AutocastMode]] = []
    """Stack of active modes, the innermost last."""

    def __init__(self, dtype: torch.dtype | None, device: str) -> None:
        super().__init__()
        self.dtype = dtype
        self._device = device
        self._weights: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if self.dtype is None or _AutocastMode.entered[-1] is not self:  # only the innermost mode casts
            return func(*args, **kwargs)
        if name == BANNED_ON_CUDA and self._device == "cuda" and _on_accelerator(args, kwargs):
            raise RuntimeError(_BANNED_MESSAGE)
        if kwargs.get("out") is not None:  # autocast has no overloads with ``out=``
            return func(*args, **kwargs)
        if name in LOWER_PRECISION_FUNCTIONS:
            target: torch.dtype | None = self.dtype
        elif name in FLOAT32_FUNCTIONS and kwargs.get("dtype") is None:
            target = torch.float32
        elif name in WIDEST_DTYPE_FUNCTIONS:
            target = _widest_dtype(args)
        else:
            target = None
        if target is not None:
            args, kwargs = self._cast_tensors(args, target), self._cast_tensors(kwargs, target)
        elif (inner := _expose_listed_calls(func)) is not None or (inner := _COMPOSED.get(func)) is not None:
            with self:
                return inner(*args, **kwargs)
        return func(*args, **kwargs)

    def _cast_tensors(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, VirtualTensor):
            if not value.is_floating_point() or value.dtype in (dtype, torch.float64) or value.device.type == "cpu":
                return value
            return self._cast_weight(value, dtype) if _should_cache_cast(value, dtype) else value.to(dtype)
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            return type(value)(self._cast_tensors(item, dtype) for item in value)
        if isinstance(value, dict):
            return {key: self._cast_tensors(item, dtype) for key, item in value.items()}
        return value

    def _cast_weight(self, weight: VirtualTensor, dtype: torch.dtype) -> torch.Tensor:
        """Cast a leaf once, and cache it until autocast is left."""
        found = self._weights.get(id(weight))
        if found is None or found[0] is not weight:
            found = self._weights[id(weight)] = (weight, weight.to(dtype))
        return found[1]


@functools.cache
def _expose_listed_calls(func: Any) -> Callable[..., Any] | None:
    """A copy of a torch function that calls listed ones, such as ``multi_head_attention_forward``; None for others.

    ``__torch_function__`` receives such a call as a whole and is disabled inside it. The copy skips its own mode
    check, so that the functions it calls are cast one by one, as in ATen.
    """
    if not inspect.isfunction(func) or func.__module__ not in _IN_PYTHON or func.__name__ in _AUTOCAST_FUNCTIONS:
        return None
    if _AUTOCAST_FUNCTIONS.isdisjoint(func.__code__.co_names):
        return None
    namespace = {**func.__globals__, **dict.fromkeys(_MODE_CHECKS, lambda *args: False)}
    inner = types.FunctionType(func.__code__, namespace, func.__name__, func.__defaults__, func.__closure__)
    inner.__kwdefaults__ = func.__kwdefaults__
    return inner


def composed_cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """``cross_entropy`` as ATen composes it (LossNLL.cpp), with its names.

    It is on none of CUDA's lists. The log-softmax is told to have its input's dtype, so autocast leaves that as it is:
    the logarithms are made and kept in bfloat16, and a float32 copy of them for the loss.
    """
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    if input.shape == target.shape and (not target.is_floating_point() or ignore_index >= 0):
        aten, number = torch.ops.aten, _reduction.get_enum(reduction)
        refused: torch.Tensor = aten.cross_entropy_loss(input, target, weight, number, ignore_index, label_smoothing)
        return refused
    classes = 0 if input.dim() == 1 else 1
    logarithms = functional.log_softmax(input, classes, dtype=input.dtype)
    if input.shape != target.shape:
        loss = functional.nll_loss(logarithms, target, weight, ignore_index=ignore_index, reduction=reduction)
        if not label_smoothing:
            return loss
    count = input.shape[classes]
    weights = weight
    if weight is not None and input.dim() > 1:
        weights = weight.view([count if dim == classes else 1 for dim in range(input.dim())])
    if input.shape == target.shape:
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / count
        products = logarithms * target if weights is None else logarithms * target * weights
        if reduction == "none":
            return -products.sum(classes)
        return -products.sum() / (input.numel() / count if reduction == "mean" else 1)
    smooth = -(logarithms if weights is None else logarithms * weights).sum(classes)
    ignored = target == ignore_index
    smooth = smooth.masked_fill(ignored, 0.0)
    if reduction == "mean":
        kept: torch.Tensor = ~ignored
        if weight is not None:
            kept = weight.gather(0, target.masked_fill(ignored, 0).flatten()).masked_fill(ignored.flatten(), 0)
        smooth = smooth.sum() / kept.sum()
    elif reduction == "sum":
        smooth = smooth.sum()
    return (1 - label_smoothing) * loss + smooth * (label_smoothing / count)


_COMPOSED: dict[Any, Callable[..., Any]] = {functional.cross_entropy: composed_cross_entropy}
"""Functions that ATen composes of listed ones, which are cast one by one."""


def _on_accelerator(args: Any, kwargs: Any) -> bool:
    return any(isinstance(each, VirtualTensor) and each.device.type != "cpu" for each in (*args, *kwargs.values()))


def _should_cache_cast(value: torch.Tensor, dtype: torch.dtype) -> bool:
    lower = dtype != torch.float32 and value.dtype == torch.float32
    kept = value.requires_grad and value.is_leaf and not value._is_view()
    return lower and kept and torch.is_autocast_cache_enabled()


def _widest_dtype(args: Any) -> torch.dtype | None:
    dtypes = [value.dtype for value in args if isinstance(value, VirtualTensor) and value.is_floating_point()]
    return functools.reduce(torch.promote_types, dtypes) if dtypes else None
