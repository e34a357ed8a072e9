"""Collectives over a group, differentiable: plain PyTorch, as in flash-attn."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from flash_attn._rest import module_getattr

__getattr__ = module_getattr(__name__)


def all_gather_raw(input_: Any, process_group: Any, async_op: bool = False) -> Any:
    """All ranks' tensors concatenated, and the handle of the collective."""
    rows, *rest = input_.shape
    output = input_.new_empty((dist.get_world_size(process_group) * rows, *rest))
    return output, dist.all_gather_into_tensor(output, input_.contiguous(), group=process_group, async_op=async_op)


def reduce_scatter_raw(input_: Any, process_group: Any, async_op: bool = False) -> Any:
    """This rank's rows of the sum, and the handle of the collective."""
    size = dist.get_world_size(process_group)
    rows, *rest = input_.shape
    assert rows % size == 0
    output = input_.new_empty((rows // size, *rest))
    return output, dist.reduce_scatter_tensor(output, input_.contiguous(), group=process_group, async_op=async_op)


def all_reduce_raw(input_: Any, process_group: Any, async_op: bool = False) -> Any:
    """The sum over ranks, and the handle of the collective."""
    input_ = input_.contiguous()
    return input_, dist.all_reduce(input_, group=process_group, async_op=async_op)


class AllGatherFunc(torch.autograd.Function):
    """An all-gather whose backward is a reduce-scatter."""

    @staticmethod
    def forward(ctx: Any, input_: Any, process_group: Any) -> Any:
        """All ranks' rows."""
        ctx.process_group = process_group
        return all_gather_raw(input_, process_group)[0]

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        """This rank's rows of the gradient."""
        return reduce_scatter_raw(grad_output, ctx.process_group)[0], None


class ReduceScatterFunc(torch.autograd.Function):
    """A reduce-scatter whose backward is an all-gather."""

    @staticmethod
    def forward(ctx: Any, input_: Any, process_group: Any) -> Any:
        """This rank's rows of the sum."""
        ctx.process_group = process_group
        return reduce_scatter_raw(input_, process_group)[0]

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        """All ranks' rows of the gradient."""
        return all_gather_raw(grad_output, ctx.process_group)[0], None


class AllReduceFunc(torch.autograd.Function):
    """An all-reduce whose backward passes the gradient on unchanged."""

    @staticmethod
    def forward(ctx: Any, input_: Any, process_group: Any) -> Any:
        """The sum."""
        return all_reduce_raw(input_, process_group)[0]

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        """The gradient as it is."""
        return grad_output, None


all_gather = AllGatherFunc.apply
reduce_scatter = ReduceScatterFunc.apply
all_reduce = AllReduceFunc.apply


def get_dim_for_local_rank(dim: int, world_size: int, local_rank: int, multiple_of: int = 1) -> int:
    """A rank's share of a dimension, in multiples; the first ranks take what is left over."""
    share, over = divmod(dim // multiple_of, world_size)
    return (share + (local_rank < over)) * multiple_of
