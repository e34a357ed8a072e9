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
    """By operator: calls, and bytes that this rank sent."""
