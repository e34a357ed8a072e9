"""Abbreviates long lists of parameter names."""

from collections.abc import Iterable


def group_by_module(names: Iterable[str]) -> list[str]:
    """Parameter names grouped by pattern, numbers replaced by ``*``: ``model.layers.*.mlp.up_proj.weight (28)``."""
    counts: dict[str, int] = {}
    for name in names:
        pattern = ".".join("*" if part.isdecimal() else part for part in name.split("."))
        counts[pattern] = counts.get(pattern, 0) + 1
    return [f"{pattern} ({count})" if count > 1 else pattern for pattern, count in counts.items()]
