"""What a rank computes and transfers, by step and phase: the input of plan's roofline model."""

from __future__ import annotations

import msgspec


class PhaseWork(msgspec.Struct, frozen=True):
    """Work of one rank in one phase of one step; counted by ``gonogo.virtual.tracing.work``."""

    step: int
    phase: str
    flops: int
    memory_bytes: int
    long_seconds: float
    """Time by the roofline of operators that run longer than their launch takes."""
    short_seconds: float
    """Time by the roofline of the other operators, without launch overhead."""
    short_operators: int
    to_host_bytes: int
    from_host_bytes: int
    collectives: dict[str, tuple[int, int]] = {}
    """By operator: calls, and bytes that this rank sent. See :func:`collective_key`."""
    operators: int = 0
    """Number of operators launched on the accelerator."""
    library_calls: int = 0
    """How many of them are of libraries with own kernels (Transformer Engine, flash-attn): each is much Python."""
    kernels: list[tuple[str, int, int, int]] = []
    """Operators run on the accelerator: name, FLOPs, bytes, count; without those that were only counted."""


def collective_key(operator: str, ranks: int, *, spans_nodes: bool = False, is_async: bool = False) -> str:
    """The key under which calls of a collective are counted: operator, group size, across nodes, async."""
    return f"{operator} of {ranks}{' across nodes' if spans_nodes else ''}{' async' if is_async else ''}"


def parse_collective_key(key: str) -> tuple[str, int | None, bool, bool]:
    """Operator, group size (None if not stated), whether it spans nodes, whether it is asynchronous."""
    operator, _, rest = key.partition(" of ")
    words = rest.split()
    return operator, int(words[0]) if words else None, "across" in words, "async" in words
