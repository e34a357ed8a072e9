"""Which values pydantic takes for a key of DeepSpeed's config, by the key's type and limits."""

from __future__ import annotations

import math
from typing import Any

from gonogo.evidence.config.deepspeed_keys import KeyInfo
from gonogo.finding import Text

_BOOLEAN_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n"})
_TRUTH = Text("true or false", " true 或 false")
_WHOLE = Text("a whole number", "整数")
_NUMBER = Text("a number", "数值")
_TEXT = Text("a string", "字符串")
_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def is_positive(value: Any) -> bool:
    """Whether a number is above zero; what is no number is not judged here."""
    return not isinstance(value, (int, float)) or isinstance(value, bool) or value > 0


def wanted_instead(info: KeyInfo, value: Any) -> Text | None:
    """What pydantic wants instead of the value; None where it takes it."""
    if value is None:
        return None if info.default is None else _KIND.get(info.type)
    if info.values:
        return None if value in info.values else Text(*(", ".join(_said(one) for one in info.values),) * 2)
    if info.type == "bool":
        return None if _is_boolean(value) else _TRUTH
    if info.type == "str":
        return None if isinstance(value, str) else _TEXT
    if info.type not in ("int", "float"):
        return None
    number = _number(value, whole=info.type == "int")
    limits = ", ".join(f"{_SIGNS[name]} {limit:g}" for name, limit in info.bounds.items())
    if number is None or not _within(number, info):
        kind = _WHOLE if info.type == "int" else _NUMBER
        return Text("{kind} {limits}", "{limits} 的{kind}").format(kind=kind, limits=limits) if limits else kind
    return None


_KIND = {"bool": _TRUTH, "int": _WHOLE, "float": _NUMBER, "str": _TEXT}


def _said(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _is_boolean(value: Any) -> bool:
    if isinstance(value, (bool, int, float)):
        return value in (0, 1)
    return isinstance(value, str) and value.lower() in _BOOLEAN_WORDS


def _number(value: Any, *, whole: bool) -> float | None:
    if isinstance(value, str):
        try:
            value = int(value) if whole else float(value)
        except ValueError:
            return None
    if not isinstance(value, (int, float)) or (whole and isinstance(value, float) and not value.is_integer()):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _within(number: float, info: KeyInfo) -> bool:
    bounds = info.bounds
    return not (
        ("gt" in bounds and number <= bounds["gt"])
        or ("ge" in bounds and number < bounds["ge"])
        or ("lt" in bounds and number >= bounds["lt"])
        or ("le" in bounds and number > bounds["le"])
    )
