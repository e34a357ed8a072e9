"""What a parameter, or a tensor of an optimizer, is called in a sentence."""

from __future__ import annotations

import re

from gonogo.finding import Text, translated

_OPTIMIZER_PREFIX_PATTERN = re.compile(r"\d+: ")
_FLAT_TENSOR_PATTERN = re.compile(r"group (\d+), tensor (\d+)")
_PARTITION_PATTERN = re.compile(r"partition (\d+)")


def state_text(name: str, slot: str = "") -> Text:
    """The name of a state, with that of the optimizer's slot, such as ``exp_avg of a.weight``."""
    shown = _name_text(name)
    return translated("{slot} of {name}").format(slot=slot, name=shown) if slot else shown


def _name_text(name: str) -> Text:
    """The name; for a flat partition, which has none, its number."""
    prefix = _OPTIMIZER_PREFIX_PATTERN.match(name)
    start = prefix.end() if prefix else 0
    if flat := _FLAT_TENSOR_PATTERN.fullmatch(name, start):
        shown = translated("group {group}, tensor {place}").format(group=flat[1], place=flat[2])
    elif part := _PARTITION_PATTERN.fullmatch(name, start):
        shown = translated("partition {place}").format(place=part[1])
    else:
        return Text(name, name)
    return Text(f"{name[:start]}{shown.en}", f"{name[:start]}{shown.zh}")
