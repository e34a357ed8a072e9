"""Norms, activations, rotary embeddings, softmax, dropout (csrc/extensions/normalization.cpp and others)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual.kernels.checks import check
from gonogo.virtual.kernels.transformer_engine.compiled_functions import CompiledFunctions, flatten_to_2d
from gonogo.virtual.kernels.transformer_engine.constants import QkvFormat, torch_dtype
from gonogo.virtual.kernels.transformer_engine.quantized import (
    DELAYED,
    MXFP8,
    fill_quantized,
    recipe_name,
    stored_tensors,
)

_HALF_DTYPES = (torch.float16, torch.bfloat16)
_GATED_ACTIVATIONS = ("glu", "geglu", "qgeglu", "reglu", "sreglu", "swiglu", "clamped_swiglu", "situglu")
_UNGATED_ACTIVATIONS = ("gelu", "qgelu", "relu", "srelu", "silu")
_BACKWARD_ACTIVATIONS = (
    *("dglu", "dgelu", "dgeglu", "dqgelu", "dqgeglu", "drelu", "dreglu", "dsrelu", "dsreglu", "dsilu", "dswiglu"),
    *("clamped_dswiglu", "dsituglu"),
)
_FUSED_RECIPES = (DELAYED, MXFP8)
"""Recipes for which an activation kernel writes FP8 itself."""
_BIAS_GRADIENT_FUNCTIONS = ("dbias_dgelu", "dbias_dsilu", "dbias_drelu", "dbias_dqgelu", "dbias_dsrelu")


class Norms(CompiledFunctions):
    """LayerNorm and RMSNorm, with the statistics that they save for the backward."""

    def layernorm_fwd(
        self,
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        eps: float,
        ln_out: torch.Tensor | None,
        quantizer: Any,
        otype: Any,
        sm_margin: int,
        zero_centered_gamma: bool,
    ) -> list[Any]:
        """[output, mean, reciprocal standard deviation]."""
        out, statistics = self._allocate_normalized(input, weight, ln_out, quantizer, otype)
        return [
            out,
            self._allocate_like((statistics,), torch.float32, input),
            self._allocate_like((statistics,), torch.float32, input),
        ]

    def rmsnorm_fwd(
        self,
        input: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        ln_out: torch.Tensor | None,
        quantizer: Any,
        otype: Any,
        sm_margin: int,
        zero_centered_gamma: bool,
    ) -> list[Any]:
        """[output, None, reciprocal root mean square]."""
        out, statistics = self._allocate_normalized(input, weight, ln_out, quantizer, otype)
        return [out, None, self._allocate_like((statistics,), torch.float32, input)]

    def _allocate_normalized(
        self, input: torch.Tensor, weight: torch.Tensor, out: torch.Tensor | None, quantizer: Any, otype: Any
    ) -> tuple[Any, int]:
        self._require_plain_tensors(input, weight)
        rows, columns = flatten_to_2d(input.shape)
        check(weight.numel() == columns, "Gamma must have the same length as hidden size.")
        if out is None:
            out = self._allocate_output(input.shape, torch_dtype(otype), input, quantizer, (DELAYED,))
        else:
            for part in stored_tensors(out) or [out]:
                self._written(part)
            if quantizer is not None and recipe_name(quantizer) != DELAYED:
                self._allocate_like(input.shape, torch_dtype(otype), input)
                fill_quantized(quantizer, self._allocator_on(input.device))
        return out, rows

    def layernorm_bwd(
        self, dz: torch.Tensor, x: torch.Tensor, mu: torch.Tensor, rsigma: torch.Tensor, gamma: torch.Tensor,
        sm_margin: int, zero_centered_gamma: bool,
    ) -> list[Any]:  # fmt: skip
        """[dx, dgamma, dbeta]."""
        dx = self._norm_backward(2, dz, x, mu, rsigma, gamma)
        return [dx, torch.empty_like(gamma), torch.empty_like(gamma)]

    def rmsnorm_bwd(
        self, dz: torch.Tensor, x: torch.Tensor, rsigma: torch.Tensor, gamma: torch.Tensor, sm_margin: int,
        zero_centered_gamma: bool,
    ) -> list[Any]:  # fmt: skip
        """[dx, dgamma]."""
        return [self._norm_backward(1, dz, x, rsigma, gamma), torch.empty_like(gamma)]

    def rmsnorm_bwd_add(
        self, dz: torch.Tensor, x: torch.Tensor, add: torch.Tensor, rsigma: torch.Tensor, gamma: torch.Tensor,
        sm_margin: int, zero_centered_gamma: bool,
    ) -> list[Any]:  # fmt: skip
        """[dx plus ``add``, dgamma]."""
        return [self._norm_backward(1, dz, x, add, rsigma, gamma), torch.empty_like(gamma)]

    def _norm_backward(
        self, partial_sum_count: int, dz: torch.Tensor, x: torch.Tensor, *others: torch.Tensor
    ) -> torch.Tensor:
        """Allocate dx; temporarily also partial sums of the weight gradients in float32, a row per multiprocessor."""
        self._require_plain_tensors(dz, x, *others)
        whole = [tensor.contiguous() for tensor in (dz, x, *others)]
        dx = torch.empty_like(whole[1])
        rows = torch.cuda.get_device_properties(x.device).multi_processor_count
        torch.empty((partial_sum_count, rows, x.shape[-1]), dtype=torch.float32, device=x.device)
        self._written(dx)
        return dx


class Activations(CompiledFunctions):
    """Activations and their backward, which allocate nothing but an output."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """All functions by name."""
        found: dict[str, Callable[..., Any]] = {}
        for names, halves in ((_GATED_ACTIVATIONS, 2), (_UNGATED_ACTIVATIONS, 1)):
            found |= {name: functools.partial(self._activation_forward, halves) for name in names}
        found |= dict.fromkeys(_BACKWARD_ACTIVATIONS, self._activation_backward)
        return found | dict.fromkeys(_BIAS_GRADIENT_FUNCTIONS, self._activation_backward_with_bias)

    def _activation_forward(
        self, input_width_factor: int, input: torch.Tensor, quantizer: Any, *settings: Any, **named: Any
    ) -> Any:
        self._require_plain_tensors(input)
        *rows, last = input.contiguous().shape
        return self._allocate_output((*rows, last // input_width_factor), input.dtype, input, quantizer, _FUSED_RECIPES)

    def _activation_backward(
        self, grad: torch.Tensor, fwd_input: torch.Tensor, quantizer: Any, *rest: Any, **named: Any
    ) -> Any:
        self._require_plain_tensors(grad, fwd_input)
        kept = [grad.contiguous(), fwd_input.contiguous()]
        return self._allocate_output(kept[1].shape, fwd_input.dtype, fwd_input, quantizer, _FUSED_RECIPES)

    def _activation_backward_with_bias(self, grad: torch.Tensor, fwd_input: torch.Tensor, quantizer: Any) -> list[Any]:
        gradient = self._activation_backward(grad, fwd_input, quantizer)
        return [self._allocate_like((grad.shape[-1],), grad.dtype, grad), gradient]


class Rotary(CompiledFunctions):
    """Rotary embeddings (csrc/extensions/apply_rope.cpp)."""

    def fused_rope_forward(
        self, input: torch.Tensor, freqs: torch.Tensor, start_positions: Any, qkv_format: Any, interleaved: bool,
        cu_seqlens: Any, cp_size: int, cp_rank: int,
    ) -> Any:  # fmt: skip
        """A contiguous output of the input's shape."""
        self._require_plain_tensors(input, freqs)
        _check_frequencies(freqs)
        packed = qkv_format == QkvFormat["NVTE_THD"]
        check(input.dim() == (3 if packed else 4), f"expected {3 if packed else 4}D tensor")
        check(not packed or cu_seqlens is not None, "expected cu_seqlens tensor")
        check(
            input.shape[-1] >= freqs.shape[-1],
            "expected the last dim of the input tensor equals or is greater than the freqs tensor",
        )
        if not packed:
            length = input.shape[0 if qkv_format == QkvFormat["NVTE_SBHD"] else 1]
            check(length * cp_size <= freqs.shape[0], "expected freqs tensor has a longer sequence length than input")
        return self._allocate_like(input.shape, input.dtype, input)

    fused_rope_backward = fused_rope_forward

    def fused_qkv_rope_forward(
        self, qkv_input: torch.Tensor, q_freqs: torch.Tensor, k_freqs: torch.Tensor, start_positions: Any,
        qkv_split_arg_list: list[int], *settings: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """(queries, keys, values)."""
        self._require_plain_tensors(qkv_input, q_freqs, k_freqs)
        _check_frequencies(q_freqs)
        _check_frequencies(k_freqs)
        first, second, heads, _ = qkv_input.shape
        of_q, of_k, of_v = qkv_split_arg_list
        shapes = ((heads * of_q // of_k, of_k), (heads, of_k), (heads, of_v))
        return tuple(self._allocate_like((first, second, *shape), qkv_input.dtype, qkv_input) for shape in shapes)

    def fused_qkv_rope_backward(
        self, q_grad_out: torch.Tensor, k_grad_out: torch.Tensor, v_grad_out: torch.Tensor, q_freqs: torch.Tensor,
        k_freqs: torch.Tensor, qkv_split_arg_list: list[int], *settings: Any,
    ) -> Any:  # fmt: skip
        """The gradients of all three in one tensor."""
        self._require_plain_tensors(q_grad_out, k_grad_out, v_grad_out, q_freqs, k_freqs)
        heads = sum(tensor.shape[2] for tensor in (q_grad_out, k_grad_out, v_grad_out))
        together = sum(qkv_split_arg_list)
        shape = (*q_grad_out.shape[:2], heads * q_grad_out.shape[3] // together, together)
        return self._allocate_like(shape, q_grad_out.dtype, q_grad_out)


def _check_frequencies(freqs: torch.Tensor) -> None:
    check(freqs.dim() == 4, "expected 4D tensor")
    check(freqs.shape[1] == 1 and freqs.shape[2] == 1, "expected the second and third dims of the freqs tensor equal 1")
    check(freqs.dtype == torch.float32, "Dtype of the freqs tensor must be float")


class Softmax(CompiledFunctions):
    """Scaled softmax of attention scores: a new output in the forward, in place in the backward."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """All functions by name."""
        kinds = ("scaled", "scaled_masked", "scaled_upper_triang_masked", "scaled_aligned_causal_masked")
        found: dict[str, Callable[..., Any]] = {}
        for kind in kinds:
            found |= {
                f"{kind}_softmax_forward": self._softmax_forward,
                f"{kind}_softmax_backward": self._softmax_backward,
            }
        return found

    def _softmax_forward(self, input: torch.Tensor, *mask_and_scale: Any) -> Any:
        self._require_plain_tensors(input)
        check(input.dtype in _HALF_DTYPES, "Only fp16 and bf16 are supported")
        return self._allocate_like(input.shape, input.dtype, input)

    def _softmax_backward(self, output_grad: torch.Tensor, softmax_results: torch.Tensor, scale: float) -> torch.Tensor:
        self._require_plain_tensors(output_grad, softmax_results)
        gradient = output_grad.contiguous()
        softmax_results.contiguous()
        check(gradient.dtype in _HALF_DTYPES, "Only fp16 and bf16 are supported")
        self._written(gradient)
        return gradient


class Dropout(CompiledFunctions):
    """Dropout with a bit mask."""

    def dropout_fwd(
        self, input: torch.Tensor, dropout_probability: float, out: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        """[output, mask]."""
        self._require_plain_tensors(input)
        output = self._allocate_like(input.shape, input.dtype, input) if out is None else out
        self._allocate_like((2,), torch.int64, input)
        return [output, self._allocate_like((input.numel() // 8,), torch.uint8, input)]

    def dropout_bwd(
        self, grad_output: torch.Tensor, mask: torch.Tensor, dropout_probability: float,
        grad_input: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """The gradient of the input."""
        self._require_plain_tensors(grad_output, mask)
        return torch.empty_like(grad_output) if grad_input is None else grad_input
