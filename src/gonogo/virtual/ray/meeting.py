"""Python objects that one worker broadcasts or scatters to others: they are all here, so they get the very ones."""

from __future__ import annotations

import os
import pickle
import time
from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from gonogo.virtual.collectives.neighbours import Neighbours
from gonogo.virtual.hooks.patching import Patches
from gonogo.virtual.ray.turns import Turns

_FROM_ROOT = ("broadcast_object_list", "scatter_object_list")
_PATIENCE = 120.0
"""Seconds after which a rank that never sends is given up: what it sends is assumed then."""


def install(patches: Patches, turns: Turns) -> None:
    """Answer for the workers of the cluster."""
    sent: dict[Any, bytes] = {}
    counts: dict[Any, int] = {}

    def ask(group: Any, operator: str, **what: Any) -> list[Any] | None:
        if turns.mine is None or operator not in _FROM_ROOT:
            return None
        members = tuple(dist.get_process_group_ranks(group or c10d._get_default_group()))
        world = (os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT"), members, operator, what.get("root"))
        mine = (turns.mine.number, world)
        counts[mine] = number = counts.get(mine, 0) + 1
        if dist.get_rank() == what.get("root"):
            sent[world, number] = pickle.dumps(what.get("objects"))
        end = time.monotonic() + _PATIENCE
        while (world, number) not in sent and time.monotonic() < end and turns.ended_by is None:
            time.sleep(0.01)  # the others have their turn
        found = sent.get((world, number))
        return None if found is None else [pickle.loads(found)]

    patches.set(Neighbours, "ask", staticmethod(ask))
