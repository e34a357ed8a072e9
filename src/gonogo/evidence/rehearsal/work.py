"""What a rank computes and moves, by step and phase: the input of plan's roofline."""

from __future__ import annotations

import msgspec


class PhaseWork(msgspec.Struct, frozen=True):
    """Work of one rank in one phase of one step; counted by ``gonogo.virtual.tracing.work``."""

    step: int
    phase: str
    flops: int
    memory_bytes: int
    long_seconds: float
    """Of operators that run longer than their launch takes, by the roofline."""
    short_seconds: float
    """Of the others: what they would take if nothing had to be launched."""
    short_operators: int
    to_host_bytes: int
    from_host_bytes: int
    collectives: dict[str, tuple[int, int]] = {}
    """By operator: calls, and bytes that this rank sent. See :func:`collective_key`."""
    operators: int = 0
    """All that were launched on the accelerator."""
    library_calls: int = 0
    """Of them, those of libraries with kernels of their own (Transformer Engine, flash-attn): each is much Python."""
    kernels: list[tuple[str, int, int, int]] = []
    """What ran on the accelerator: operator, FLOPs, bytes, how often; of what was run, not of what was only counted."""


def collective_key(operator: str, ranks: int, *, spans_nodes: bool = False, is_async: bool = False) -> str:
    """The name under which calls of a collective are counted: operator, ranks of its group, where, and how."""
    return f"{operator} of {ranks}{' across nodes' if spans_nodes else ''}{' async' if is_async else ''}"


def parse_collective_key(key: str) -> tuple[str, int | None, bool, bool]:
    """Operator, ranks of its group (None: not said), whether that spans nodes, whether the program goes on."""
    operator, _, rest = key.partition(" of ")
    words = rest.split()
    return operator, int(words[0]) if words else None, "across" in words, "async" in words
