"""Random layerwise token dropping (csrc/random_ltd/pt_binding.cpp)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gonogo.virtual.kernels.checks import check_in_device_memory

Written = Callable[[torch.Tensor], object]


class RandomLtd:
    """Replaces the module ``random_ltd``."""

    def __init__(self, mark_written: Written) -> None:
        self._written = mark_written

    def token_sort_(self, unsorted_token_ids: torch.Tensor, original_tokens: int) -> torch.Tensor:
        """Sort the token ids in place."""
        check_in_device_memory("random_ltd.token_sort_", unsorted_token_ids=unsorted_token_ids)
        self._written(unsorted_token_ids)
        return unsorted_token_ids

    def token_gather(self, activations: torch.Tensor, sorted_indices: torch.Tensor, batch_first: bool) -> torch.Tensor:
        """Gather the kept tokens: [batch, kept, channels] or [kept, batch, channels]."""
        check_in_device_memory("random_ltd.token_gather", activations=activations, sorted_indices=sorted_indices)
        batch, kept = sorted_indices.shape[0], sorted_indices.shape[1]
        shape = (batch, kept) if batch_first else (kept, batch)
        return torch.empty((*shape, activations.shape[2]), dtype=activations.dtype, device=activations.device)

    def token_scatter_(
        self,
        all_activations: torch.Tensor,
        layer_activations: torch.Tensor,
        sorted_indices: torch.Tensor,
        batch_first: bool,
    ) -> torch.Tensor:
        """Write the tokens back into ``all_activations``."""
        check_in_device_memory(
            "random_ltd.token_scatter_",
            all_activations=all_activations,
            layer_activations=layer_activations,
            sorted_indices=sorted_indices,
        )
        self._written(all_activations)
        return all_activations

    def mask_gather_bert(self, dense_mask: torch.Tensor, sorted_indices: torch.Tensor) -> torch.Tensor:
        """Gather an attention mask: [layers, batch, 1, kept, kept]."""
        check_in_device_memory("random_ltd.mask_gather_bert", dense_mask=dense_mask, sorted_indices=sorted_indices)
        layers, kept = sorted_indices.shape[0], sorted_indices.shape[2]
        shape = (layers, dense_mask.shape[0], 1, kept, kept)
        return torch.empty(shape, dtype=dense_mask.dtype, device=dense_mask.device)

    def mask_gather_gpt(self, dense_mask: torch.Tensor, truncated_seq_len: int) -> torch.Tensor:
        """Gather an attention mask: [batch, 1, kept, kept]."""
        check_in_device_memory("random_ltd.mask_gather_gpt", dense_mask=dense_mask)
        shape = (dense_mask.shape[0], 1, truncated_seq_len, truncated_seq_len)
        return torch.empty(shape, dtype=dense_mask.dtype, device=dense_mask.device)
