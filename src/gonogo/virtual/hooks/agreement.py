"""ZeRO-3's checks that the ranks agree, where rank 0 isn't rehearsed.

DeepSpeed broadcasts rank 0's list into a tensor of -1. A rank that is rehearsed without rank 0 takes what a root sends
to be what it has itself, so that it has to have its own list there. Read at deepspeed 0.19.8 (runtime/zero/utils.py).
"""

from __future__ import annotations

import os
from typing import Any

import torch

from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches


def install(patches: Patches) -> None:
    """Have each rank hold its own list where rank 0's arrives; the comparisons are the same."""
    patches.on_undo(after_import("deepspeed.runtime.zero.utils", lambda module: _install(patches, module)))


def _install(patches: Patches, module: Any) -> None:
    def get_lst_from_rank0(lst: list[int]) -> list[int]:
        device = torch.device(module.get_accelerator().device_name(os.environ["LOCAL_RANK"]))
        tensor = torch.tensor(lst, dtype=torch.int64, device=device)
        module.dist.broadcast(tensor, src=0, async_op=False)
        return [int(one) for one in tensor.cpu().tolist()]

    def assert_lst_len_same_as_other_ranks(lst: list[int]) -> None:
        theirs = get_lst_from_rank0([len(lst)])[0]
        if theirs != len(lst):
            rank = module.dist.get_rank()
            raise RuntimeError(
                f"Detected a disagreement on list length between rank0 and rank{rank}: \n rank0: {theirs} "
                f"\n rank{rank}: {len(lst)}"
            )

    for replaced in (get_lst_from_rank0, assert_lst_len_same_as_other_ranks):
        if hasattr(module, replaced.__name__):
            patches.set(module, replaced.__name__, replaced)
