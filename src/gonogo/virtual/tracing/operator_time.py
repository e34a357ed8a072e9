"""The time of an operator on an accelerator, by a roofline model; see :mod:`gonogo.trials.plan.roofline`."""

from __future__ import annotations

from gonogo.evidence.environment.hardware import PeakSpeed

MEMORY_SHARE = 0.8
"""Share of the stated memory bandwidth that stream benchmarks reach."""
LAUNCH_SECONDS = 4e-6
"""Minimum time of an operator: the launch of its kernel."""


OPERATOR_SECONDS = 28e-6
"""CPU time per operator, including Python, autograd and views, which limits small models. Fitted to published step
times (``benchmarks/step_time.py``)."""


def operator_seconds(flops: int, moved_bytes: int, speed: PeakSpeed, kind: str = "product") -> float:
    """Seconds of one operator on the accelerator, without its launch: the longer of computing and moving memory.

    ``kind`` ends with ``product`` or ``attention``, whose kernels reach a smaller share of the stated peak.
    """
    share = speed.attention_share if kind.endswith("attention") else speed.matmul_share
    return max(flops / (speed.matmul_flops * share), moved_bytes / (speed.memory_bytes * MEMORY_SHARE))
