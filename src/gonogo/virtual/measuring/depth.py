"""The same model with fewer layers: measurements at two depths are extrapolated to the full one.

Layers of one kind take the same memory and time each, so memory and work grow linearly with the number of layers. A
pattern of kinds (alternating sliding and full attention) is kept by using whole periods.
"""

from __future__ import annotations

import copy
from typing import Any

_DEPTH_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_TEXT_CONFIG_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")
_MAX_PERIOD = 16
_DEFAULT_MAX_POSITIONS = 131072
"""Assumed limit in tokens if the config states none."""


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part of a config, or all of it if it has no such part."""
    for name in _TEXT_CONFIG_KEYS:
        part = config.get(name)
        if isinstance(part, dict):
            return _text_config(part)
    return config


def _depth_key(config: dict[str, Any]) -> str | None:
    part = _text_config(config)
    if part.get("num_decoder_layers") or part.get("decoder_layers"):
        return None  # encoder-decoder: the two depths may differ
    return next((key for key in _DEPTH_KEYS if isinstance(part.get(key), int) and part[key] > 0), None)


def layer_count(config: dict[str, Any]) -> int:
    """Number of layers of the language model, or 0 if its depth can't be changed."""
    key = _depth_key(config)
    return _text_config(config)[key] if key is not None else 0


def _per_layer_lists(config: dict[str, Any]) -> dict[str, list[Any]]:
    """Entries of the config that have one item per layer."""
    depth = layer_count(config)
    part = _text_config(config)
    return {key: value for key, value in part.items() if isinstance(value, list) and len(value) == depth > 1}


def _leading_dense_layers(config: dict[str, Any]) -> int:
    """Number of layers before the stack becomes regular, such as DeepSeek's first dense layers."""
    part = _text_config(config)
    return next((part[key] for key in ("first_k_dense_replace",) if isinstance(part.get(key), int)), 0)


def layer_period(config: dict[str, Any]) -> int:
    """Number of layers after which the pattern repeats: 1 if all are alike, 0 if no period is found."""
    lists = [value[_leading_dense_layers(config) :] for value in _per_layer_lists(config).values()]
    for period in range(1, _MAX_PERIOD + 1):
        if all(all(value[i] == value[i - period] for i in range(period, len(value))) for value in lists):
            return _extend_period_by_intervals(_text_config(config), period)
    return 0


def _extend_period_by_intervals(part: dict[str, Any], period: int) -> int:
    """The period, adjusted for layer kinds that recur at an interval given as a number instead of a list."""
    for key in ("decoder_sparse_step", "interleave_moe_layer_step", "sliding_window_pattern", "full_attention_interval",
                "no_rope_layer_interval", "attn_layer_period", "expert_layer_period"):  # fmt: skip
        step = part.get(key)
        if isinstance(step, int) and step > 1 and period % step:
            period = period * step
    return period if period <= _MAX_PERIOD else 0


def with_depth(config: dict[str, Any], depth: int) -> dict[str, Any]:
    """The config with ``depth`` layers in its language model; ``depth`` is one of :func:`measurement_depths`."""
    made = copy.deepcopy(config)
    key = _depth_key(made)
    assert key is not None
    for name, value in _per_layer_lists(made).items():
        _text_config(made)[name] = value[:depth]
    part = _text_config(made)
    for name in ("max_window_layers",):
        if isinstance(part.get(name), int):
            part[name] = min(part[name], depth)
    part[key] = depth
    return made


def measurement_depths(config: dict[str, Any], min_layers: int) -> tuple[int, int] | None:
    """Two depths to measure at: at least ``min_layers`` layers, whole periods apart, congruent with the full depth.

    None if the pattern is not known to repeat, or if the full depth is no more expensive than those two together.
    """
    full, period = layer_count(config), layer_period(config)
    if not full or not period:
        return None
    first = _leading_dense_layers(config) + max(min_layers, period)
    first += (full - first) % period
    second = first + period * max(1, -(-2 // period))
    return (first, second) if first + second < full else None


def max_positions(config: dict[str, Any]) -> int:
    """The maximum number of positions according to the config."""
    part = _text_config(config)
    limits = [part.get(name) for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")]
    known = [limit for limit in limits if isinstance(limit, int) and limit > 0]
    return min(known) if known else _DEFAULT_MAX_POSITIONS
