"""Padding taken out of a batch, and put back: plain PyTorch, as in flash-attn."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from flash_attn._rest import module_getattr

__getattr__ = module_getattr(__name__)


def index_first_axis(tensor: Any, indices: Any) -> Any:
    """The rows of the first dimension that ``indices`` name."""
    width = tensor[0].numel()
    rows = indices[:, None].expand(-1, width)
    return torch.gather(tensor.reshape(tensor.shape[0], width), 0, rows).reshape(-1, *tensor.shape[1:])


def index_put_first_axis(values: Any, indices: Any, first_axis_dim: int) -> Any:
    """Rows put at ``indices`` of a tensor of zeros."""
    output = torch.zeros(first_axis_dim, *values.shape[1:], device=values.device, dtype=values.dtype)
    return output.index_put((indices,), values)


def unpad_input(hidden_states: Any, attention_mask: Any, unused_mask: Any = None) -> Any:
    """(tokens, indices, cu_seqlens, longest, lengths) of a padded batch."""
    every = attention_mask + unused_mask if unused_mask is not None else attention_mask
    lengths = every.sum(dim=-1, dtype=torch.int32)
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(every.flatten(), as_tuple=False).flatten()
    longest = lengths.max().item()
    starts = F.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, starts, longest, used


def pad_input(hidden_states: Any, indices: Any, batch: int, seqlen: int) -> Any:
    """Pad the tokens of :func:`unpad_input` back to a batch."""
    output = index_put_first_axis(hidden_states, indices, batch * seqlen)
    return output.reshape(batch, seqlen, *hidden_states.shape[1:])


def index_first_axis_residual(tensor: Any, indices: Any) -> Any:
    """The indexed rows, and the tensor itself, detached."""
    return index_first_axis(tensor, indices), tensor.detach()


def unpad_input_for_concatenated_sequences(hidden_states: Any, attention_mask_in_length: Any) -> Any:
    """As :func:`unpad_input`, where each row of the mask holds the lengths of the sequences that lie in the row."""
    used = attention_mask_in_length.sum(dim=-1)
    places = torch.arange(attention_mask_in_length.size(-1), device=used.device, dtype=used.dtype)
    indices = torch.nonzero((places < used[:, None]).flatten(), as_tuple=False).flatten()
    flat = attention_mask_in_length.flatten()
    lengths = flat[torch.nonzero(flat, as_tuple=False).flatten()]
    starts = F.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, starts, lengths.max().item()


class IndexFirstAxis:
    """Replaces the autograd function of :func:`index_first_axis`."""

    apply = staticmethod(index_first_axis)


class IndexPutFirstAxis:
    """Replaces the autograd function of :func:`index_put_first_axis`."""

    apply = staticmethod(index_put_first_axis)


class IndexFirstAxisResidual:
    """Replaces the autograd function of :func:`index_first_axis_residual`."""

    apply = staticmethod(index_first_axis_residual)
