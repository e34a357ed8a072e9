"""The same model with fewer layers: what is measured on two depths is extended to the full one.

Layers of one kind take the same memory and time each, so that memory and work grow linearly with their number. A
pattern of kinds (sliding and full attention in turns) is kept by whole periods.
"""

from __future__ import annotations

import copy
from typing import Any

_DEPTH_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_TEXT_CONFIG_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")
_MAX_PERIOD = 16
_DEFAULT_MAX_POSITIONS = 131072
"""Tokens that are taken to be possible where a configuration states no limit."""


def _language(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a configuration that is about the language model; the whole where there's none."""
    for name in _TEXT_CONFIG_KEYS:
        part = config.get(name)
        if isinstance(part, dict):
            return _language(part)
    return config


def _depth_key(config: dict[str, Any]) -> str | None:
    part = _language(config)
    if part.get("num_decoder_layers") or part.get("decoder_layers"):
        return None  # two stacks: their depths don't have to agree
    return next((key for key in _DEPTH_KEYS if isinstance(part.get(key), int) and part[key] > 0), None)


def depth_of(config: dict[str, Any]) -> int:
    """Layers of the language model's stack; 0 where its depth can't be changed."""
    key = _depth_key(config)
    return _language(config)[key] if key is not None else 0


def _per_layer_lists(config: dict[str, Any]) -> dict[str, list[Any]]:
    """Lists that hold something for each layer."""
    depth = depth_of(config)
    part = _language(config)
    return {key: value for key, value in part.items() if isinstance(value, list) and len(value) == depth > 1}


def _leading_dense_layers(config: dict[str, Any]) -> int:
    """Layers before the stack becomes regular, as DeepSeek's first dense ones."""
    part = _language(config)
    return next((part[key] for key in ("first_k_dense_replace",) if isinstance(part.get(key), int)), 0)


def period_of(config: dict[str, Any]) -> int:
    """After so many layers the pattern repeats, 1 where all are alike; 0 where none is found."""
    lists = [value[_leading_dense_layers(config) :] for value in _per_layer_lists(config).values()]
    for period in range(1, _MAX_PERIOD + 1):
        if all(all(value[i] == value[i - period] for i in range(period, len(value))) for value in lists):
            return _with_intervals(_language(config), period)
    return 0


def _with_intervals(part: dict[str, Any], period: int) -> int:
    """The period where some kinds of layer come every so many layers by a number, not a list."""
    for key in ("decoder_sparse_step", "interleave_moe_layer_step", "sliding_window_pattern", "full_attention_interval",
                "no_rope_layer_interval", "attn_layer_period", "expert_layer_period"):  # fmt: skip
        step = part.get(key)
        if isinstance(step, int) and step > 1 and period % step:
            period = period * step
    return period if period <= _MAX_PERIOD else 0


def with_depth(config: dict[str, Any], depth: int) -> dict[str, Any]:
    """The configuration with so many layers in its language model; ``depth`` is one of :func:`depths`."""
    made = copy.deepcopy(config)
    key = _depth_key(made)
    assert key is not None
    for name, value in _per_layer_lists(made).items():
        _language(made)[name] = value[:depth]
    part = _language(made)
    for name in ("max_window_layers",):
        if isinstance(part.get(name), int):
            part[name] = min(part[name], depth)
    part[key] = depth
    return made


def depths(config: dict[str, Any], min_layers: int) -> tuple[int, int] | None:
    """Two depths to measure at: at least ``min_layers`` layers, whole periods apart, and in step with the full depth.

    None where the pattern is not known to repeat, or where the full depth costs no more than those two.
    """
    full, period = depth_of(config), period_of(config)
    if not full or not period:
        return None
    first = _leading_dense_layers(config) + max(min_layers, period)
    first += (full - first) % period
    second = first + period * max(1, -(-2 // period))
    return (first, second) if first + second < full else None


def longest_sequence(config: dict[str, Any]) -> int:
    """The most positions that the model has, as far as its configuration says."""
    part = _language(config)
    limits = [part.get(name) for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")]
    known = [limit for limit in limits if isinstance(limit, int) and limit > 0]
    return min(known) if known else _DEFAULT_MAX_POSITIONS
