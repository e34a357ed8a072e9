"""Plain scalars of YAML 1.1 as PyYAML reads them: ``1e-5`` is a string, ``on`` is true."""

from __future__ import annotations

from typing import Any

_TRUE = frozenset({"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
_FALSE = frozenset({"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
_NULL_SCALARS = frozenset({"", "~", "null", "Null", "NULL"})
_STANDARD_TAG_PREFIX = "tag:yaml.org,2002:"


def parse_yaml_scalar(text: str, tag: str | None, *, plain: bool) -> tuple[Any, bool]:
    """A scalar's value, and whether it is known: a custom tag may change it."""
    if tag is None or tag == "!":
        return (_parse_plain(text) if plain and tag is None else text), True
    kind = tag.removeprefix(_STANDARD_TAG_PREFIX)
    if kind == "str":
        return text, True
    if kind in ("int", "float", "bool", "null"):
        return _parse_plain(text), True
    return text, False


def _parse_plain(text: str) -> Any:
    if text in _NULL_SCALARS:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if text[0] not in "+-.0123456789":
        return text
    integer = _parse_integer(text)
    if integer is not None:
        return integer
    number = _parse_float(text)
    return text if number is None else number


def _parse_integer(text: str) -> int | None:
    digits = text.replace("_", "")
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-") if digits[:1] in "+-" else digits
    if not digits or not digits.isascii() or len(digits) > 40 or text[0] == "_":
        return None
    try:
        if digits.startswith("0b"):
            return sign * int(digits[2:], 2)
        if digits.startswith("0x"):
            return sign * int(digits[2:], 16)
        if not digits.isdecimal():
            return None
        return sign * int(digits, 8 if digits.startswith("0") and len(digits) > 1 else 10)
    except ValueError:
        return None


def _parse_float(text: str) -> float | None:
    lowered = text.lower()
    if lowered in (".nan", ".inf", "+.inf", "-.inf"):
        return float(lowered.replace(".", "", 1))
    # PyYAML reads a number with an exponent only if it has a decimal point and the exponent a sign.
    mantissa, e, exponent = lowered.partition("e")
    if "." not in mantissa or (e and exponent[:1] not in ("+", "-")):
        return None
    try:
        return float(lowered.replace("_", ""))
    except ValueError:
        return None
