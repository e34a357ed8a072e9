"""Checks of dtypes and shapes that real kernels make, but meta kernels don't, or report with another message.

Meta kernels in Python (``torch/_meta_registrations.py``, ``torch/_refs``) silently multiply float32 by bfloat16, and
have messages of their own; programs and hazards expect those of the kernels, which are in ``aten/src/ATen/native``:
``LinearAlgebra.cpp``, ``Convolution.cpp``, ``cuda/Blas.cpp``, ``cuda/layer_norm_kernel.cu``,
``cuda/group_norm_kernel.cu``; and ``infer_size_impl`` of ``ATen/ExpandUtils.cpp``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

from gonogo.virtual.generators import generator_device_type

aten = torch.ops.aten

_SCALAR_TYPE = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip
_C_TYPE = {
    torch.float32: "float", torch.float64: "double", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16",
    torch.int64: "long", torch.int32: "int", torch.int16: "short", torch.int8: "signed char",
    torch.uint8: "unsigned char", torch.bool: "bool",
}  # fmt: skip


class CompilationState:
    """Whether the program uses torch.compile."""

    anything: ClassVar[bool] = False
    """Whether anything was compiled: up to torch 2.13, compiled norms accept weights and data of different dtypes."""


def _scalar_type(tensor: torch.Tensor) -> str:
    return _SCALAR_TYPE.get(tensor.dtype, str(tensor.dtype))


def _c_type(tensor: torch.Tensor) -> str:
    return _C_TYPE.get(tensor.dtype, str(tensor.dtype))


def _tensor_type(tensor: torch.Tensor) -> str:
    return f"torch.{'' if tensor.is_cpu else 'cuda.'}{_scalar_type(tensor)}Tensor"


def _check_matmul_shapes(a: torch.Tensor, b: torch.Tensor) -> None:
    if a.dim() == b.dim() == 2 and a.shape[1] != b.shape[0]:
        shapes = f"{a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]}"
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({shapes})")


def _raise_no_kernel(name: str, tensor: torch.Tensor) -> None:
    """Raise CUDA's error for a dtype without a kernel."""
    raise NotImplementedError(f"\"{name}\" not implemented for '{_scalar_type(tensor)}'")


def _check_cuda_matmul_dtype(name: str, a: torch.Tensor) -> None:
    """Raise if the tensor is an integer one: CUDA has no integer matmul."""
    if not (a.is_cpu or a.dtype.is_floating_point or a.dtype.is_complex):
        raise RuntimeError(f"\"{name}_cuda\" not implemented for '{_scalar_type(a)}'")


def _check_mm(a: torch.Tensor, b: torch.Tensor, *_: Any) -> None:
    _check_matmul_shapes(a, b)
    if a.dtype != b.dtype:
        names = "m1 and m2" if a.is_cpu else "mat1 and mat2"
        raise RuntimeError(f"expected {names} to have the same dtype, but got: {_c_type(a)} != {_c_type(b)}")
    _check_cuda_matmul_dtype("addmm", a)


def _check_addmm(addend: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *_: Any) -> None:
    for name, one in (("self", addend), ("mat1", a)):
        if one.dtype != b.dtype:
            raise RuntimeError(
                f"{name} and mat2 must have the same dtype, but got {_scalar_type(one)} and {_scalar_type(b)}"
            )
    _check_matmul_shapes(a, b)
    _check_cuda_matmul_dtype("addmm", a)


def _check_bmm(a: torch.Tensor, b: torch.Tensor) -> None:
    _require_same_dtype(a, b)
    _check_cuda_matmul_dtype("baddbmm", a)


def _require_same_dtype(a: torch.Tensor, b: torch.Tensor, *_: Any) -> None:
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected scalar type {_scalar_type(a)} but found {_scalar_type(b)}")


def _check_layer_norm(data: torch.Tensor, shape: Any, weight: torch.Tensor | None, *_: Any) -> None:
    _check_affine_weight(data, weight)


def _check_affine_weight(data: torch.Tensor, weight: torch.Tensor | None, *_: Any) -> None:
    """Check that weights have the data's dtype, as CUDA's norms require; the CPU's accept float32 with bfloat16."""
    if weight is not None and not data.is_cpu and not CompilationState.anything:
        _require_same_dtype(data, weight)


def _check_convolution(data: torch.Tensor, weight: torch.Tensor, bias: Any, *rest: Any) -> None:
    if data.dtype != weight.dtype:
        kinds = f"Input type ({_tensor_type(data)}) and weight type ({_tensor_type(weight)})"
        raise RuntimeError(f"{kinds} should be the same")
    transposed, groups = (rest[3], rest[5]) if len(rest) > 5 else (False, 1)
    wanted = weight.shape[0] if transposed else weight.shape[1] * groups
    if data.dim() == weight.dim() and data.shape[1] != wanted:
        kind = f"{'transposed=1, ' if transposed else ''}weight of size {list(weight.shape)}"
        raise RuntimeError(
            f"Given {'' if transposed else f'groups={groups}, '}{kind}, expected input{list(data.shape)} to have "
            f"{wanted} channels, but got {data.shape[1]} channels instead"
        )


def _full_precision_check(name: str) -> Callable[..., None]:
    def raise_for_half_precision(data: torch.Tensor, *_: Any) -> None:
        if not data.is_cpu and data.dtype in (torch.float16, torch.bfloat16):
            _raise_no_kernel(name, data)

    return raise_for_half_precision


def _integer_check(name: str) -> Callable[..., None]:
    def raise_for_floating_point(data: torch.Tensor, *_: Any) -> None:
        if not data.is_cpu and data.dtype.is_floating_point:
            _raise_no_kernel(name, data)

    return raise_for_floating_point


def _check_softmax(data: torch.Tensor, *_: Any) -> None:
    if not (data.is_cpu or data.dtype.is_floating_point or data.dtype.is_complex):
        _raise_no_kernel("host_softmax", data)


_FULL_PRECISION_OPERATORS = {
    aten._linalg_svd.default: "svd_cuda_gesvdj", aten._linalg_eigh.default: "linalg_eigh_cuda",
    aten.linalg_qr.default: "geqrf_cuda", aten.linalg_cholesky_ex.default: "cholesky_cusolver",
    aten._linalg_solve_ex.default: "lu_factor_cusolver", aten.linalg_lu_factor_ex.default: "lu_factor_cusolver",
    aten._ctc_loss.default: "ctc_loss_cuda", aten._ctc_loss.Tensor: "ctc_loss_cuda",
}  # fmt: skip
_FP8_CAPABILITY = (8, 9)
"""Minimum compute capability for FP8 matmul, which CUDA's ``scaled_mm`` checks first."""


def _check_scaled_mm(a: torch.Tensor, *_: Any) -> None:
    if a.device.type == "cuda" and torch.cuda.get_device_capability(a.device) < _FP8_CAPABILITY:
        raise RuntimeError(
            "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or ROCm MI300+"
        )


_INTEGER_OPERATORS = {
    aten.bitwise_and.Tensor: "bitwise_and_cuda", aten.bitwise_or.Tensor: "bitwise_or_cuda",
    aten.bitwise_xor.Tensor: "bitwise_xor_cuda", aten.bitwise_not.default: "bitwise_not_cuda",
}  # fmt: skip
_CHECKS: dict[Any, Callable[..., None]] = {
    aten.mm.default: _check_mm, aten.addmm.default: _check_addmm, aten.bmm.default: _check_bmm,
    aten.convolution.default: _check_convolution,
    aten.native_layer_norm.default: _check_layer_norm, aten.native_group_norm.default: _check_affine_weight,
    aten.grid_sampler_2d.default: _require_same_dtype, aten.grid_sampler_3d.default: _require_same_dtype,
    aten._scaled_mm.default: _check_scaled_mm,
    aten._softmax.default: _check_softmax, aten._log_softmax.default: _check_softmax,
    **{operator: _full_precision_check(name) for operator, name in _FULL_PRECISION_OPERATORS.items()},
    **{operator: _integer_check(name) for operator, name in _INTEGER_OPERATORS.items()},
}  # fmt: skip


def check_operands(func: Any, arguments: Sequence[Any]) -> None:
    """Raise the kernel's RuntimeError for operands that the meta kernel of ``func`` would accept."""
    check = _CHECKS.get(func)
    if check is not None:
        check(*arguments)


def check_generator(generator: Any, device: torch.device, tensors: Sequence[torch.Tensor]) -> None:
    """Raise RuntimeError if random numbers are drawn on another device type than the generator's.

    Follows ``check_generator`` of ``ATen/core/Generator.h``; empty tensors are not checked, since nothing is drawn.
    """
    if generator is None or (tensors and not tensors[0].numel()):
        return
    kind = generator_device_type(generator)
    if kind != device.type:
        raise RuntimeError(f"Expected a '{device.type}' device type for generator but found '{kind}'")


_BROADCAST_MESSAGES = ("Attempting to broadcast a dimension of length", "Shape mismatch: objects cannot be broadcast")
_TORCH_SIZE_PATTERN = re.compile(r"torch\.Size\((\[[\d, ]*\])\)")


def to_kernel_error(error: RuntimeError, arguments: Sequence[Any]) -> RuntimeError:
    """Translate a meta kernel's error into the real kernel's message; unchanged if they are the same."""
    text = str(error)
    if text.startswith(_BROADCAST_MESSAGES):
        return _broadcast_error([one.shape for one in arguments if isinstance(one, torch.Tensor)]) or error
    words = _TORCH_SIZE_PATTERN.sub(r"\1", text)
    return error if words == text else RuntimeError(words)


def _broadcast_error(shapes: Sequence[torch.Size]) -> RuntimeError | None:
    """The error of ``infer_size_impl``: operands in order, dimensions from the last."""
    result: tuple[int, ...] = ()
    for shape in shapes:
        rank = max(len(result), len(shape))
        a, b = (1,) * (rank - len(result)) + result, (1,) * (rank - len(shape)) + tuple(shape)
        for dimension in reversed(range(rank)):
            if a[dimension] != b[dimension] and 1 not in (a[dimension], b[dimension]):
                return RuntimeError(
                    f"The size of tensor a ({a[dimension]}) must match the size of tensor b ({b[dimension]}) at "
                    f"non-singleton dimension {dimension}"
                )
        result = tuple(m if n == 1 else n for m, n in zip(a, b, strict=True))
    return None
