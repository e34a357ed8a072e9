"""The model's mixture of experts: number of experts, experts per token, expert-parallel ranks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from gonogo.finding.as_run import Experts

_EXPERT_COUNT_KEYS = ("num_moe_experts", "n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_CHOSEN = ("moe_router_topk", "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k")


def moe_settings(model: nn.Module, expert_parallel: int) -> Experts | None:
    """The MoE settings of the model's config; None without experts. ``expert_parallel``: ranks that share them."""
    for config in _model_configs(model):
        count, chosen = _first_positive(config, _EXPERT_COUNT_KEYS), _first_positive(config, _CHOSEN)
        if count > 1 and chosen:
            capacity = _config_value(config, "moe_expert_capacity_factor")
            return Experts(
                count, chosen, max(expert_parallel, 1), float(capacity) if _is_capacity_factor(capacity) else None
            )
    return None


def megatron_expert_parallel() -> int:
    """Megatron-Core's expert-parallel size; 1 if it isn't loaded or has no such groups."""
    state: Any = sys.modules.get("megatron.core.parallel_state")
    try:
        return int(state.get_expert_model_parallel_world_size())
    except (AttributeError, AssertionError, TypeError):
        return 1


def _model_configs(model: nn.Module) -> Iterator[Any]:
    seen: set[int] = set()
    for module in model.modules():
        config = getattr(module, "config", None)
        for one in (config, getattr(config, "text_config", None)):
            if one is not None and id(one) not in seen:
                seen.add(id(one))
                yield one


def _config_value(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


def _first_positive(config: Any, names: tuple[str, ...]) -> int:
    found = (_config_value(config, name) for name in names)
    return next((value for value in found if type(value) is int and value > 0), 0)


def _is_capacity_factor(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
