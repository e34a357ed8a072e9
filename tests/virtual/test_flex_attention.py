"""``flex_attention`` under torch.compile: shapes, what is kept for the backward pass, and selective checkpointing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from virtual.worlds import virtual_session

from gonogo.virtual.unsupported import UnsupportedOperator

BATCH, HEADS, GROUPS, LENGTH, SIZE, OF_VALUES = 2, 8, 2, 1024, 96, 64
_OUT = BATCH * HEADS * LENGTH * OF_VALUES * 2
_STATISTICS = 2 * BATCH * HEADS * LENGTH * 4
_BLOCKS = (LENGTH // 128) ** 2


def _operands() -> list[torch.Tensor]:
    sizes = ((HEADS, SIZE), (GROUPS, SIZE), (GROUPS, OF_VALUES))
    made = [torch.empty(BATCH, LENGTH, heads, size, dtype=torch.bfloat16, device="cuda") for heads, size in sizes]
    return [one.transpose(1, 2).requires_grad_() for one in made]


def _causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return query >= key


def _compiled() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    return torch.compile(flex_attention, options={"max_autotune": True}), torch.compile(create_block_mask)


def test_the_output_and_two_statistics_are_kept_and_no_scores(tmp_path: Path) -> None:
    with virtual_session(tmp_path) as session:
        attend, mask_of = _compiled()
        mask = mask_of(_causal, None, None, LENGTH, LENGTH, device="cuda")
        assert mask.kv_indices.shape == (1, 1, LENGTH // 128, LENGTH // 128)
        operands = _operands()
        before = torch.cuda.memory_allocated()
        out = attend(*operands, block_mask=mask, enable_gqa=True)
        assert out.shape == (BATCH, HEADS, LENGTH, OF_VALUES)
        assert out.dtype == torch.bfloat16
        assert out.transpose(1, 2).is_contiguous()  # in the query's order
        assert torch.cuda.memory_allocated() - before == _OUT + _STATISTICS
        torch.cuda.reset_peak_memory_stats()
        out.backward(torch.empty_like(out))
        assert [one.grad.shape for one in operands] == [one.shape for one in operands]  # type: ignore[union-attr]
        gradients = sum(one.numel() * 2 for one in operands)
        peak = torch.cuda.max_memory_allocated() - before - _OUT * 2 - _STATISTICS
        assert gradients <= peak <= gradients + _STATISTICS
        assert session is not None


def test_without_the_compiler_scores_are_kept_which_is_not_rehearsed(tmp_path: Path) -> None:
    from torch.nn.attention import flex_attention

    with virtual_session(tmp_path), pytest.raises(UnsupportedOperator, match="flex_attention"):
        flex_attention.flex_attention(*_operands(), enable_gqa=True)


def test_an_uncompiled_mask_takes_the_whole_mask_for_a_while(tmp_path: Path) -> None:
    from torch.nn.attention import flex_attention

    with virtual_session(tmp_path):
        mask = flex_attention.create_block_mask(_causal, BATCH, None, LENGTH, LENGTH)
        assert mask.kv_indices.device.type == "cuda"  # the accelerator, where none is named
        assert torch.cuda.max_memory_allocated() >= BATCH * LENGTH * LENGTH
        assert torch.cuda.memory_allocated() < BATCH * LENGTH * LENGTH // 16


@pytest.mark.parametrize("saved", [True, False])
def test_selective_checkpointing_is_asked_about_the_operator(tmp_path: Path, saved: bool) -> None:
    from torch._higher_order_ops.flex_attention import flex_attention as operator

    def policy(context: Any, function: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        keep = saved and function in {operator}
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    with virtual_session(tmp_path):
        attend, mask_of = _compiled()
        mask = mask_of(_causal, None, None, LENGTH, LENGTH, device="cuda")
        operands = _operands()
        before = torch.cuda.memory_allocated()
        out = checkpoint(
            lambda *given: attend(*given, block_mask=mask, enable_gqa=True).float().square(), *operands,
            use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy),
        )  # fmt: skip
        kept = torch.cuda.memory_allocated() - before - 2 * _OUT
        assert kept == (_OUT + _STATISTICS if saved else 0)
        out.sum().backward()
        assert operands[0].grad is not None
