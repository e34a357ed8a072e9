import math
from typing import Any

from msgspec.structs import replace

from gonogo.evidence.config.deepspeed_keys import KeyInfo
from gonogo.hazards.config._keys import has_current_limits, is_key_known, keys_with_descriptions, rejects_unknown_keys
from gonogo.hazards.facts.deepspeed_settings import config_span, deepspeed_version_matches, dotted_key
from gonogo.hazards.facts.training_framework import format_json
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Field, Findings, Hazard, Run, Text, translated

_BATCH_SIZE_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")

# These have hazards of their own.
_KEYS_OF_OTHER_HAZARDS = (("zero_optimization", "stage"), ("zero_optimization", "stage3_prefetch_bucket_size"))
_BOOLEAN_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n"})
_BOOLEAN_TEXT = translated("true or false")
_INTEGER_TEXT = translated("an integer")
_NUMBER = translated("a number")
_STRING_TEXT = translated("a string")
_SIGN_BY_BOUND = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_EXPECTED_TEXTS_BY_TYPE = {"bool": _BOOLEAN_TEXT, "int": _INTEGER_TEXT, "float": _NUMBER, "str": _STRING_TEXT}


class DsConfigValueRefused(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Invalid values in validated sections, and batch sizes at the top level that are not positive."""
        for keys, field, info, parent in keys_with_descriptions(config):
            if (
                info is None
                or not field.known
                or field.value == "auto"
                or info.type == "object"
                or keys in _KEYS_OF_OTHER_HAZARDS
            ):
                continue
            if len(keys) == 1:
                wanted = (
                    self.texts["positive_integer_text"]
                    if keys[0] in _BATCH_SIZE_KEYS and not _is_positive(field.value)
                    else None
                )
                closed: bool | None = True
            else:
                closed = rejects_unknown_keys(parent, run)
                now = _expected_value_text(info, field.value) if closed is not False else None
                always = (
                    _expected_value_text(replace(info, values=(), bounds={}), field.value) if now is not None else None
                )
                hold = has_current_limits(info, run)
                if hold is None and always is None:
                    closed = None
                wanted = always if hold is False else now
            if wanted is None or is_key_known(info, run) is False:
                continue
            # pydantic 1, before DeepSpeed 0.15, truncated fractions; newer releases reject them.
            fraction = isinstance(field.value, float) and info.type == "int"
            if fraction and deepspeed_version_matches(run, ">=0.15") is False:
                continue
            sure = closed and (not fraction or deepspeed_version_matches(run, ">=0.15"))
            yield self.finding(
                translated('"{key}" is {value}, but DeepSpeed requires {wanted}: the run stops at startup.').format(
                    key=dotted_key(keys), value=format_json(field.value), wanted=wanted
                ),
                certainty=Certainty.CERTAIN if sure else Certainty.POSSIBLE if closed is None else Certainty.LIKELY,
                cure=translated("Set it to {wanted}").format(wanted=_as_integer_text(field, info) or wanted),
                spans=config_span(config, *keys),
            )


def _is_positive(value: Any) -> bool:
    """Whether a number is greater than 0; True for values that are not numbers."""
    return not isinstance(value, (int, float)) or isinstance(value, bool) or value > 0


def _expected_value_text(info: KeyInfo, value: Any) -> Text | None:
    """What pydantic requires instead of the value; None if it accepts the value."""
    if value is None:
        return None if info.default is None else _EXPECTED_TEXTS_BY_TYPE.get(info.type)
    if info.values:
        return None if value in info.values else _one_of_text(info.values)
    if info.type == "bool":
        return None if _is_accepted_as_boolean(value) else _BOOLEAN_TEXT
    if info.type == "str":
        return None if isinstance(value, str) else _STRING_TEXT
    if info.type not in ("int", "float"):
        return None
    number = _parse_number(value, as_integer=info.type == "int")
    limits = ", ".join(f"{_SIGN_BY_BOUND[name]} {limit:g}" for name, limit in info.bounds.items())
    if number is None or not _is_in_bounds(number, info):
        kind = _INTEGER_TEXT if info.type == "int" else _NUMBER
        return Text("{kind} {limits}", " {limits} 的{kind}").format(kind=kind, limits=limits) if limits else kind
    return None


def _one_of_text(values: tuple[Any, ...]) -> Text:
    listed = [format_json(one) for one in values]
    return translated("one of {values}").format(values=Text(", ".join(listed), "、".join(listed)))


def _is_accepted_as_boolean(value: Any) -> bool:
    if isinstance(value, (bool, int, float)):
        return value in (0, 1)
    return isinstance(value, str) and value.lower() in _BOOLEAN_WORDS


def _parse_number(value: Any, *, as_integer: bool) -> float | None:
    if isinstance(value, str):
        try:
            value = int(value) if as_integer else float(value)
        except ValueError:
            return None
    if not isinstance(value, (int, float)) or (as_integer and isinstance(value, float) and not value.is_integer()):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _as_integer_text(field: Field, info: KeyInfo) -> Text | None:
    """The integer that a string such as "5e8" means; None if it is no integer that DeepSpeed accepts."""
    number = field.number if field.string else None
    whole = int(number) if info.type == "int" and number is not None and math.isfinite(number) else None
    fits = whole is not None and whole == number and _is_in_bounds(whole, info)
    return Text(f"{whole}", f" {whole}") if fits else None


def _is_in_bounds(number: float, info: KeyInfo) -> bool:
    bounds = info.bounds
    return not (
        ("gt" in bounds and number <= bounds["gt"])
        or ("ge" in bounds and number < bounds["ge"])
        or ("lt" in bounds and number >= bounds["lt"])
        or ("le" in bounds and number > bounds["le"])
    )
