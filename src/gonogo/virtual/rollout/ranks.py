"""Coordinates the ranks of an engine in the trainers' processes where one of them needs the others.

With vLLM's ``external_launcher``, each process creates an engine of its own. All processes set up vLLM's groups and
agree on the smallest cache (``ExecutorWithExternalLauncher``, vllm/v1/executor/uniproc_executor.py); the processes of
a tensor-parallel group reduce in every layer of every step (vllm/distributed/parallel_state.py), for which they must
have the same prompts. With one GPU per engine a step needs no other process; updating weights, sleeping and waking
never do.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch

from gonogo.finding.divergence import ENGINE_CONSTRUCTION, ENGINE_GENERATION
from gonogo.virtual.collectives.peers import Peers


class EngineRanks:
    """This rank among the others of an engine with tensor-parallel size ``tp``. Does nothing if it is alone."""

    def __init__(self, peers: Peers | None, tp: int) -> None:
        self._peers = peers if torch.distributed.is_initialized() else None
        self._tp = tp

    def agree_on_free_bytes(self, available_bytes: int) -> int:
        """Construct the engine together on all processes; returns the smallest memory available for the cache in
        bytes."""
        if self._peers is None:
            return available_bytes
        everyone = tuple(range(torch.distributed.get_world_size()))
        if not self._peers.has_rehearsed_peer(everyone):
            return available_bytes
        reply = self._peers.report_collective(
            "vllm:world", everyone, ENGINE_CONSTRUCTION, sizes=(self._tp,), payload=str(available_bytes).encode()
        )
        return min(map(int, reply)) if reply is not None else available_bytes

    def step(self, prompts: Sequence[Sequence[int]], num_completions: int) -> None:
        """Generate together: all ranks must pass the same prompts (as token ids) and number of completions."""
        if self._peers is None or self._tp == 1 or not prompts:
            return
        first = torch.distributed.get_rank() // self._tp * self._tp
        members = tuple(range(first, first + self._tp))
        if self._peers.has_rehearsed_peer(members):
            tokens = sum(map(len, prompts))
            content = zlib.crc32(repr([list(one) for one in prompts]).encode())
            self._peers.report_collective(
                f"vllm:tp:{first}", members, ENGINE_GENERATION, sizes=(tokens, num_completions, content)
            )
