"""How long an operator takes on an accelerator, by a roofline; see :mod:`gonogo.trials.plan.roofline`."""

from __future__ import annotations

from gonogo.evidence.environment.hardware import Speed

MEMORY_SHARE = 0.8
"""Of the stated device memory bandwidth, as stream benchmarks reach it."""
LAUNCH_SECONDS = 4e-6
"""The least that an operator takes: the launch of its kernel."""


OPERATOR_SECONDS = 28e-6
"""That the process takes for an operator, with Python's and autograd's part and that of views: small models wait for
it. Fitted to published step times (``benchmarks/step_time.py``)."""


def operator_seconds(flops: int, moved_bytes: int, speed: Speed, kind: str = "product") -> float:
    """Seconds of one operator on the accelerator, the longer of computing and moving; launching it takes time, too.

    ``kind``: what ends with ``product`` or ``attention``, whose kernels reach less of what the maker states.
    """
    share = speed.attention_share if kind.endswith("attention") else speed.matmul_share
    return max(flops / (speed.matmul_flops * share), moved_bytes / (speed.memory_bytes * MEMORY_SHARE))
