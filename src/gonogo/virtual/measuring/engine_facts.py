"""What the rollout engine takes for a model, by the figures of the stand-in that a rehearsal has in its place."""

from __future__ import annotations

from typing import Any

from gonogo.virtual.measuring.jobs import EngineFacts
from gonogo.virtual.rollout.engine import GRAPHS_IN_BUDGET, forward_of, graphs_of, sampler_of
from gonogo.virtual.rollout.model import EngineModel
from gonogo.virtual.rollout.package import version_to_stand_for
from gonogo.virtual.unsupported import UnsupportedOperator

BATCHED_TOKENS = 4096
"""TRL's ``max_num_batched_tokens`` of an engine in the trainer's process (trl/generation/vllm_generation.py)."""
_SIZES = (1, 2, 4, 8)


def engine_facts(folder: str, dtype: str, trusts: bool) -> tuple[EngineFacts, ...]:
    """The figures, by each tensor-parallel size that divides the heads; none where the engine is not known to load it.

    Key and value heads have to be divided, or held by each rank once at least (vllm/config/model.py,
    ``get_num_kv_heads``).
    """
    numbers = version_to_stand_for()[0].split(".")
    release = tuple(int(part) for part in numbers[:2] if part.isdecimal())
    found = []
    for tp in _SIZES:
        try:
            model = EngineModel(folder, dtype, tp, None, trusts, UnsupportedOperator)
        except (ValueError, UnsupportedOperator):
            continue
        if not _divides_shared_heads(model.text, tp):
            continue
        found.append(
            EngineFacts(
                tp=tp,
                weights=model.weights,
                cache_of_token=model.cache_of_token(),
                forward=forward_of(model, BATCHED_TOKENS),
                sampler_of_sequence=sampler_of(model),
                graphs=graphs_of(model),
                graphs_in_share=release >= GRAPHS_IN_BUDGET,
            )
        )
    return tuple(found)


def _divides_shared_heads(text: Any, tp: int) -> bool:
    shared = getattr(text, "num_key_value_heads", None) or tp
    return shared % tp == 0 or tp % shared == 0
