"""The schedule of a pipeline, according to the framework that runs it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

ALONE = (1, 1, 1)


def pipeline_sizes(models: Iterable[Any]) -> tuple[int, int, int]:
    """(stages, micro-batches per step, model chunks per rank), from Megatron or DeepSpeed's engine."""
    return _megatron_pipeline() or next(filter(None, map(_deepspeed_pipeline, models)), ALONE)


def _megatron_pipeline() -> tuple[int, int, int] | None:
    state: Any = sys.modules.get("megatron.core.parallel_state")
    counts: Any = sys.modules.get("megatron.core.num_microbatches_calculator")
    try:
        stages = state.get_pipeline_model_parallel_world_size()
        chunks = state.get_virtual_pipeline_model_parallel_world_size() or 1
        return int(stages), int(counts.get_num_microbatches()), int(chunks)
    except (AttributeError, AssertionError, TypeError):  # not loaded, or no groups created
        return None


def _deepspeed_pipeline(engine: Any) -> tuple[int, int, int] | None:
    stages, micro_batches = getattr(engine, "num_stages", None), getattr(engine, "micro_batches", None)
    if not isinstance(stages, int) or not isinstance(micro_batches, int):
        return None
    return stages, micro_batches, 1
