"""Routing to experts, permutation and padding of tokens (router.cpp, permutation.cpp, padding.cpp)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gonogo.virtual.kernels.checks import check
from gonogo.virtual.kernels.transformer_engine.compiled_functions import CompiledFunctions
from gonogo.virtual.kernels.transformer_engine.constants import RoutingMapFormat

_SCORE_FUNCTIONS = ("softmax", "sigmoid", "sqrtsoftplus")


class Router(CompiledFunctions):
    """Router scores, top-k selection, and the load-balancing loss."""

    def fused_topk_with_score_function_fwd(
        self, logits: torch.Tensor, topk: int, use_pre_softmax: bool, num_groups: int | None, group_topk: int | None,
        scaling_factor: float | None, score_function: str, expert_bias: torch.Tensor | None,
        routing_map_format: int = 0,
    ) -> tuple[Any, ...]:  # fmt: skip
        """(probabilities, routing map, intermediate output in float32)."""
        self._check_logits(logits, score_function)
        check(
            expert_bias is None or score_function != "softmax",
            "score_function must be sigmoid or sqrtsoftplus when expert_bias is not None",
        )
        probabilities = self._allocate_like(logits.shape, logits.dtype, logits)
        experts = self._routing_map(logits, routing_map_format)
        return probabilities, experts, self._allocate_like(logits.shape, torch.float32, logits)

    def fused_topk_with_score_function_bwd(
        self, routing_map: torch.Tensor, intermediate_output: torch.Tensor, grad_probs: torch.Tensor,
        grad_logits: torch.Tensor, *settings: Any, **named: Any,
    ) -> None:  # fmt: skip
        """Writes to ``grad_logits``."""
        self._require_plain_tensors(routing_map, intermediate_output, grad_probs, grad_logits)
        self._written(grad_logits)

    def fused_score_for_moe_aux_loss_fwd(
        self, logits: torch.Tensor, topk: int, score_function: str, routing_map_format: int = 0
    ) -> tuple[Any, ...]:
        """(scores, routing map, intermediate output in float32)."""
        self._check_logits(logits, score_function)
        scores = self._allocate_like(logits.shape, torch.float32, logits)
        experts = self._routing_map(logits, routing_map_format)
        return scores, experts, self._allocate_like(logits.shape, torch.float32, logits)

    def fused_score_for_moe_aux_loss_bwd(
        self, intermediate_output: torch.Tensor, grad_scores: torch.Tensor, grad_logits: torch.Tensor, *rest: Any
    ) -> None:
        """Writes to ``grad_logits``."""
        self._require_plain_tensors(intermediate_output, grad_scores, grad_logits)
        self._written(grad_logits)

    def fused_moe_aux_loss_fwd(
        self, probs: torch.Tensor, tokens_per_expert: torch.Tensor, total_num_tokens: Any, *settings: Any, **named: Any
    ) -> tuple[Any, ...]:
        """(loss, a buffer of two numbers for the backward)."""
        self._require_plain_tensors(probs, tokens_per_expert)
        return self._allocate_like((), probs.dtype, probs), self._allocate_like((2,), torch.float32, probs)

    def fused_moe_aux_loss_bwd(
        self, Const_buf: torch.Tensor, tokens_per_expert: torch.Tensor, num_rows: int, num_cols: int,
        grad_aux_loss: torch.Tensor,
    ) -> Any:  # fmt: skip
        """The gradient of the probabilities."""
        self._require_plain_tensors(Const_buf, tokens_per_expert, grad_aux_loss)
        return self._allocate_like((num_rows, num_cols), grad_aux_loss.dtype, grad_aux_loss)

    def _check_logits(self, logits: torch.Tensor, score_function: str) -> None:
        self._require_plain_tensors(logits)
        check(logits.is_contiguous(), "logits must be contiguous")
        check(logits.numel() > 0, "num_tokens and num_experts must be greater than 0")
        check(
            score_function in _SCORE_FUNCTIONS,
            "score_function must be softmax, sigmoid or sqrtsoftplus for router fusion",
        )

    def _routing_map(self, logits: torch.Tensor, routing_map_format: int) -> Any:
        *tokens, experts = logits.shape
        if int(routing_map_format) == RoutingMapFormat["BITMAP_U8"]:
            return self._allocate_like((*tokens, -(-experts // 8)), torch.uint8, logits)
        return self._allocate_like(logits.shape, torch.bool, logits)


class Permutation(CompiledFunctions):
    """Permutation of tokens into the order of their experts, by indices, and back."""

    def moe_permute_fwd(
        self, input: torch.Tensor, dtype: Any, indices: torch.Tensor, num_out_tokens: int,
        workspace: list[torch.Tensor], max_expanded_token_num: int,
    ) -> tuple[Any, ...]:  # fmt: skip
        """(permuted tokens, row id map, the sort's workspace, which is kept for later calls)."""
        self._require_plain_tensors(input, indices)
        expanded = input.shape[0] * indices.shape[1]
        if not workspace:
            numbers = [self._allocate_like((max_expanded_token_num,), torch.int32, input) for _ in range(3)]
            # The temporary storage of CUB's radix sort of pairs: a second copy of keys and values.
            workspace = [*numbers, self._allocate_like((8 * max_expanded_token_num,), torch.int8, input)]
        tokens = self._allocate_like(
            (num_out_tokens if num_out_tokens > 0 else expanded, input.shape[1]), input.dtype, input
        )
        return tokens, self._allocate_like((expanded,), torch.int32, input), workspace

    def moe_unpermute_fwd(
        self, input: torch.Tensor, dtype: Any, row_id_map: torch.Tensor, prob: torch.Tensor, num_tokens: int, topK: int
    ) -> Any:
        """The tokens in their original order."""
        self._require_plain_tensors(input, row_id_map)
        return self._allocate_like((num_tokens, input.shape[1]), input.dtype, input)

    moe_permute_bwd = moe_unpermute_fwd

    def moe_unpermute_bwd(
        self, input_bwd: torch.Tensor, input_fwd: torch.Tensor, dtype: Any, row_id_map: torch.Tensor, prob: torch.Tensor
    ) -> tuple[Any, ...]:
        """(token gradient, gradient of the probabilities)."""
        self._require_plain_tensors(input_bwd, input_fwd, row_id_map)
        shape = tuple(prob.shape) if prob.numel() else (row_id_map.shape[0], 1)
        gradient = self._allocate_like((input_fwd.shape[0], input_bwd.shape[1]), input_bwd.dtype, input_bwd)
        return gradient, self._allocate_like(shape, torch.float32, input_bwd)

    def fused_multi_row_padding(
        self, input: torch.Tensor, output: torch.Tensor, input_row_list: Sequence[int], padded_row_list: Sequence[int]
    ) -> None:
        """Pad each expert's rows to a multiple, into ``output``."""
        self._require_plain_tensors(input, output)
        check(len(input_row_list) == len(padded_row_list), "Number of input row list and padded row list must match.")
        check(input.dim() == 2, "Dimension of input must equal 2.")
        check(output.dim() == 2, "Dimension of output must equal  2.")
        self._written(output)

    fused_multi_row_unpadding = fused_multi_row_padding
