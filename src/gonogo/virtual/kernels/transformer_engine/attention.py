"""Fused attention by cuDNN (csrc/extensions/attention.cpp, common/fused_attn/) and its helpers.

Workspaces are those that cudnn-frontend requests in addition to cuDNN's own plans
(include/cudnn_frontend/node/scaled_dot_product_flash_attention.h): in the backward a row sum, and the queries'
gradient in float32 or, if deterministic, the gradient of the scores.

Arguments are identified by their types, because releases insert new ones between the old ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gonogo.virtual.kernels.checks import check
from gonogo.virtual.kernels.flops import CAUSAL_SHARE, attention_flops, sequence_lengths
from gonogo.virtual.kernels.transformer_engine.compiled_functions import (
    ATTENTION_ASSUMPTION,
    CUDNN_VERSION,
    CompiledFunctions,
)
from gonogo.virtual.kernels.transformer_engine.constants import (
    BiasType,
    DType,
    FusedAttentionBackend,
    MaskType,
    QkvFormat,
    QkvLayout,
    SoftmaxType,
)
from gonogo.virtual.kernels.transformer_engine.quantized import NOT_COVERED
from gonogo.virtual.unsupported import UnsupportedOperator

_HALF_DTYPES = (torch.float16, torch.bfloat16)
_TILE = 64
_NO_BACKEND = FusedAttentionBackend["NVTE_No_Backend"]
_BOTTOM_RIGHT_CAUSAL_MASKS = ("CAUSAL_BOTTOM_RIGHT_MASK", "PADDING_CAUSAL_BOTTOM_RIGHT_MASK")
_PADDING_MASKS = ("PADDING_MASK", "PADDING_CAUSAL_MASK", "PADDING_CAUSAL_BOTTOM_RIGHT_MASK")


class Attention(CompiledFunctions):
    """``fused_attn_fwd`` and ``fused_attn_bwd``."""

    def get_cudnn_version(self) -> int:
        """The version that is assumed."""
        return CUDNN_VERSION

    def get_fused_attn_backend(self, *arguments: Any) -> Any:
        """``nvte_get_fused_attn_backend`` for cuDNN 9.13.1 or newer. FP8 is not covered."""
        mask = _argument_of_type(arguments, MaskType).name.removeprefix("NVTE_")
        bias = _argument_of_type(arguments, BiasType).name.removeprefix("NVTE_")
        query = next(value for value in arguments if isinstance(value, DType) or _is_dtype(value))
        is_training = next((value for value in arguments if isinstance(value, bool)), True)
        last = max(place for place, value in enumerate(arguments) if isinstance(value, MaskType | SoftmaxType))
        dropout, _, _, length_q, length_kv, size_qk, size_v, left, _, *flags = arguments[last + 1 :]
        deterministic = bool(flags[2]) if len(flags) > 2 else False
        if int(query) in (DType["kFloat8E4M3"], DType["kFloat8E5M2"]):
            raise UnsupportedOperator("attention in FP8", NOT_COVERED)
        major = self._capability[0]
        layout = _argument_of_type(arguments, QkvLayout).name
        fits = (
            int(query) in (DType["kFloat16"], DType["kBFloat16"])
            and self._capability >= (8, 0)
            and size_qk % 8 == 0
            and size_v % 8 == 0
            and self._supports_head_sizes(is_training, size_qk, size_v)
            and bias in ("NO_BIAS", "POST_SCALE_BIAS", "ALIBI")
            and not (bias == "ALIBI" and (mask in ("NO_MASK", *_PADDING_MASKS) or major < 9))
            and not (bias == "POST_SCALE_BIAS" and mask in ("PADDING_MASK", "PADDING_CAUSAL_MASK"))
            and not (mask in _PADDING_MASKS and (bias != "NO_BIAS" or dropout))
            and not (mask in _BOTTOM_RIGHT_CAUSAL_MASKS and length_q > length_kv)
            and not ("THD" in layout and major < 9)
            and not (left >= 0 and (length_q > length_kv or bias != "NO_BIAS" or dropout))
            and not (major >= 10 and is_training and deterministic and (dropout or bias != "NO_BIAS"))
        )
        return FusedAttentionBackend["NVTE_F16_arbitrary_seqlen"] if fits else _NO_BACKEND

    def _supports_head_sizes(self, is_training: bool, head_dim_qk: int, head_dim_v: int) -> bool:
        if head_dim_qk <= 128 and head_dim_v <= 128:
            return True
        if not is_training:
            return True
        if self._capability[0] == 9:
            alike = (
                head_dim_qk == head_dim_v
                or (head_dim_qk, head_dim_v) == (192, 128)
                or min(head_dim_qk, head_dim_v) < 128
            )
            return head_dim_qk <= 256 and head_dim_v <= 256 and alike
        return self._capability[0] >= 10 and (head_dim_qk, head_dim_v) == (192, 128)

    def fused_attn_fwd(self, *arguments: Any) -> list[torch.Tensor]:
        """[output, softmax statistics, (largest logits,) RNG state, (bias, softmax offset)]."""
        self._assume(ATTENTION_ASSUMPTION, "cudnn_attention")
        length_q = arguments[0]
        layout = _argument_of_type(arguments, QkvLayout).name
        formats = [value for value in arguments if isinstance(value, QkvFormat)]
        start = _first_tensor_index(arguments)
        lengths_q, lengths_kv, q, k, v = arguments[start : start + 5]
        _refuse_quantized(arguments[start + 5 :])
        self._require_plain_tensors(lengths_q, lengths_kv, q, k, v)
        check(q.dtype in _HALF_DTYPES, "Fused attention only supports FP8 and BF16/FP16 data types.")
        format_q = _query_format(layout)
        format_out = formats[0].name.removeprefix("NVTE_") if formats else format_q
        dimensions = dict(zip(format_q, q.shape, strict=True)) | {"D": v.shape[-1]}
        out = self._allocate_like([dimensions[letter] for letter in format_out], q.dtype, q)
        heads = dimensions["H"]
        batch = lengths_q.numel() - 1
        packed = "T" in format_q and self._capability[0] in (9, 10)
        self._count_attention_flops(lengths_q, lengths_kv, arguments, heads, (q, k, v, out))
        rows = (dimensions["T"], heads, 1) if packed else (batch, heads, length_q, 1)
        found = [out, self._allocate_like(rows, torch.float32, q)]
        after_generator = max(place for place, value in enumerate(arguments) if type(value) is int)
        if any(arguments[after_generator + 1 : after_generator + 2]):  # return_max_logit
            found.append(self._allocate_like(rows, torch.float32, q))
        found.append(self._allocate_like((2,), torch.int64, q))
        bias = _argument_of_type(arguments, BiasType).name
        extra = [value for value in arguments[start + 5 : after_generator] if isinstance(value, torch.Tensor)]
        if bias == "NVTE_POST_SCALE_BIAS":
            found += [value for value in extra if value.dim() == 4 and value.shape[2] != 1]
        softmax = next((value for value in arguments if isinstance(value, SoftmaxType)), None)
        if softmax is not None and softmax.name != "NVTE_VANILLA_SOFTMAX":
            found += [value for value in extra if tuple(value.shape) == (1, heads, 1, 1)]
        return found

    def fused_attn_bwd(self, *arguments: Any) -> list[Any]:
        """[dq, dk, dv, bias gradient, softmax offset gradient]."""
        length_q, length_kv = arguments[:2]
        layouts = [value.name for value in arguments if isinstance(value, QkvLayout)]
        start = _first_tensor_index(arguments)
        lengths_q, lengths_kv, q, k, v, out, dout = arguments[start : start + 7]
        kept = next(value for value in arguments[start:] if isinstance(value, list | tuple))
        _refuse_quantized(arguments[start + 7 :])
        self._require_plain_tensors(lengths_q, lengths_kv, q, k, v, out, dout)
        deterministic = arguments[start - 1] is True
        format_q, format_kv = _query_format(layouts[0]), _key_format(layouts[0])
        of_gradients = layouts[-1]
        dq, dk, dv = self._gradients(q, k, v, format_q, format_kv, of_gradients)
        query, key = (dict(zip(letters, one.shape, strict=True)) for letters, one in ((format_q, q), (format_kv, k)))
        heads, of_keys, size = query["H"], key["H"], query["D"]
        batch = lengths_q.numel() - 1
        moved = (q, k, v, out, dout, dq, dk, dv)
        self._count_attention_flops(lengths_q, lengths_kv, arguments, heads, moved, backward=True)
        rows = query.get("T", batch * length_q)
        key_rows = key.get("T", batch * length_kv)
        workspace = rows * heads * 4
        bias = _argument_of_type(arguments, BiasType).name
        if deterministic or bias == "NVTE_POST_SCALE_BIAS":
            workspace += batch * heads * _round_up(length_q) * _round_up(length_kv) * 2
        else:
            workspace += rows * heads * size * 4
        if heads != of_keys:
            workspace += key_rows * heads * (size + v.shape[-1]) * 4
        torch.empty(workspace, dtype=torch.uint8, device=q.device)
        of_bias = None
        if bias == "NVTE_POST_SCALE_BIAS":
            of_bias = self._allocate_like(kept[-1].shape, q.dtype, q)
        softmax = next((value for value in arguments if isinstance(value, SoftmaxType)), None)
        learned = softmax is not None and softmax.name != "NVTE_VANILLA_SOFTMAX"
        return [dq, dk, dv, of_bias, self._allocate_like((1, heads, 1, 1), torch.float32, q) if learned else None]

    def _count_attention_flops(
        self,
        cu_seqlens_q: torch.Tensor,
        cu_seqlens_kv: torch.Tensor,
        arguments: Sequence[Any],
        num_heads: int,
        moved: Sequence[torch.Tensor],
        backward: bool = False,
    ) -> None:
        lengths = sequence_lengths(cu_seqlens_q, cu_seqlens_kv, *arguments[:2])
        flops = attention_flops(num_heads, lengths, moved[0].shape[-1], moved[2].shape[-1], backward=backward)
        done = CAUSAL_SHARE if "CAUSAL" in _argument_of_type(arguments, MaskType).name else 1.0
        self._computed(flops, *moved, kind="attention", done=done)

    def _gradients(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, format_q: str, format_kv: str, layout: str
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Allocate dq, dk and dv as one tensor or several, depending on the gradients' layout."""
        to_q, to_kv = _query_format(layout), _key_format(layout)
        shape_q, shape_k, shape_v = (
            _permute_shape(tensor.shape, letters, wanted)
            for tensor, letters, wanted in ((q, format_q, to_q), (k, format_kv, to_kv), (v, format_kv, to_kv))
        )
        name = layout.removeprefix("NVTE_").removeprefix("Paged_KV_")
        if "3" in name:
            place = -3 if "3HD" in name else -2
            whole = self._allocate_like(_insert_dimension(shape_q, place, 3), q.dtype, q)
            return tuple(whole.select(place, number) for number in range(3))
        dq = self._allocate_like(shape_q, q.dtype, q)
        if "2" in name:
            place = -3 if "2HD" in name else -2
            both = self._allocate_like(_insert_dimension(shape_k, place, 2), k.dtype, k)
            return dq, both.select(place, 0), both.select(place, 1)
        return dq, self._allocate_like(shape_k, k.dtype, k), self._allocate_like(shape_v, v.dtype, v)

    def fa_prepare_fwd(self, qkvi: torch.Tensor) -> Any:
        """From [length, batch, heads, 3 * size] to [3, batch, length, heads, size]."""
        self._require_plain_tensors(qkvi)
        check(qkvi.dim() == 4, "Expected 4-dim tensor.")
        length, batch, heads, size = qkvi.shape
        return self._allocate_like((3, batch, length, heads, size), qkvi.dtype, qkvi)

    def fa_prepare_bwd(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        """From three tensors [batch, length, heads, size] to one with three times the size."""
        self._require_plain_tensors(q, k, v)
        first, second, heads, size = q.shape
        return self._allocate_like((second, first, heads, 3 * size), q.dtype, q)

    def multi_tensor_transpose_to_bhsd(
        self, inputs: Sequence[torch.Tensor | None], original_format: str, outputs: Sequence[Any] = ()
    ) -> list[Any]:
        """Each tensor transposed to [batch, heads, length, size]."""
        found: list[Any] = []
        for number, tensor in enumerate(inputs):
            if tensor is None:
                found.append(None)
                continue
            self._require_plain_tensors(tensor)
            shape = _permute_shape(tensor.contiguous().shape, original_format.upper(), "BHSD")
            given = outputs[number] if outputs else None
            found.append(self._allocate_like(shape, tensor.dtype, tensor) if given is None else given)
        return found

    def multi_tensor_pad_last_dim(self, inputs: Sequence[torch.Tensor], alignment: int) -> list[torch.Tensor]:
        """Each tensor with its last dimension padded to a multiple of ``alignment``."""
        padded = [(tensor, -(-tensor.shape[-1] // alignment) * alignment) for tensor in inputs]
        return [
            tensor if size == tensor.shape[-1] else self._allocate_like((tensor.shape[0], size), tensor.dtype, tensor)
            for tensor, size in padded
        ]

    def convert_thd_to_bshd(self, tensor: torch.Tensor, cu_seqlens: torch.Tensor, b: int, max_seq_len: int) -> Any:
        """Convert packed sequences to a padded batch."""
        self._require_plain_tensors(tensor, cu_seqlens)
        return self._allocate_like((b, max_seq_len, *tensor.shape[1:]), tensor.dtype, tensor)

    def convert_bshd_to_thd(self, tensor: torch.Tensor, cu_seqlens: torch.Tensor, t: int) -> Any:
        """Convert a padded batch to packed sequences."""
        self._require_plain_tensors(tensor, cu_seqlens)
        return self._allocate_like((t, *tensor.shape[2:]), tensor.dtype, tensor)

    def copy_to_kv_cache(
        self, new_k: torch.Tensor, new_v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, *rest: Any
    ) -> None:
        """Write new keys and values into the caches."""
        self._require_plain_tensors(new_k, new_v, k_cache, v_cache)
        self._written(k_cache)
        self._written(v_cache)


def _argument_of_type(arguments: Sequence[Any], kind: Any) -> Any:
    return next(value for value in arguments if isinstance(value, kind))


def _is_dtype(value: Any) -> bool:
    return type(value).__name__ == "DType"


def _first_tensor_index(arguments: Sequence[Any]) -> int:
    return next(place for place, value in enumerate(arguments) if isinstance(value, torch.Tensor))


def _refuse_quantized(arguments: Sequence[Any]) -> None:
    for value in arguments:
        if "Quantizer" in type(value).__name__:
            raise UnsupportedOperator(type(value).__name__, NOT_COVERED)


def _query_format(layout: str) -> str:
    """The dimension letters of the queries in a layout: ``SBHD`` for ``NVTE_SBHD_SB2HD`` or ``NVTE_SB3HD``."""
    return _remove_packing_digits(layout.removeprefix("NVTE_").removeprefix("Paged_KV_").split("_")[0])


def _key_format(layout: str) -> str:
    return _remove_packing_digits(layout.removeprefix("NVTE_").removeprefix("Paged_KV_").split("_")[-1])


def _remove_packing_digits(part: str) -> str:
    return part.replace("2", "").replace("3", "")


def _permute_shape(shape: Sequence[int], letters: str, target_format: str) -> tuple[int, ...]:
    sizes = dict(zip(letters, shape, strict=True))
    return tuple(sizes[letter] for letter in target_format)


def _insert_dimension(shape: Sequence[int], place: int, size: int) -> list[int]:
    """The shape with an inserted dimension, at a position counted from the end of the result."""
    found = list(shape)
    found.insert(len(found) + 1 + place, size)
    return found


def _round_up(length: int) -> int:
    return -(-length // _TILE) * _TILE
