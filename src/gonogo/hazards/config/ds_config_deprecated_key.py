import json
from collections.abc import Callable
from functools import partial
from typing import Any

from gonogo.hazards.facts.deepspeed_settings import ZERO, config_key_span, config_span, is_read_as_json
from gonogo.hazards.facts.training_framework import fix_with_edits, format_json
from gonogo.hazards.rule import DeepSpeedConfig, Edit, Findings, Hazard, Place, Run, Severity, translated

_REPLACEMENTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "cpu_offload": ("offload_optimizer", lambda _: {"device": "cpu"}),
    "cpu_offload_param": ("offload_param", lambda _: {"device": "cpu"}),
    "stage3_gather_fp16_weights_on_model_save": ("stage3_gather_16bit_weights_on_model_save", lambda value: value),
}


def _replace_key(config: DeepSpeedConfig, old: str, new: str, value: Any) -> Edit:
    """Edit that replaces the old key and its value by the new ones."""
    key, written = config.key_place(ZERO, old), config.raw(ZERO, old).place
    if key is None or written is None or not key.source.writable:
        raise KeyError(old)
    return Place(key.source, key.start, written.end).edit(f'"{new}": {json.dumps(value)}')


class DsConfigDeprecatedKey(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Deprecated keys: an error if the new key is given too, else a warning or note with the new form."""
        for old, (new, value_of) in _REPLACEMENTS.items():
            field = config.raw(ZERO, old)
            if not field.known:
                continue
            both = config.raw(ZERO, new).place not in (None, field.place)  # the setting is given under both names
            lost = bool(field.truth) and not both and bool(is_read_as_json(run))
            makers: list[Callable[[], Edit]] = [partial(config.removing, ZERO, old)]
            if not both and field.truth:
                whole = value_of(field.value)
                makers = [partial(_replace_key, config, old, new, whole)]
            if both:
                cause = translated('"{old}" is the old name of "{new}", and both are given: DeepSpeed refuses that.')
            elif lost:
                cause = self.texts["cause"]
            else:
                cause = translated('"{old}" is the old name of "{new}".')
            yield self.finding(
                cause.format(old=old, new=new),
                severity=Severity.ERROR if both else Severity.WARNING if lost else Severity.NOTE,
                cure=(
                    translated("Remove {old}").format(old=old)
                    if both
                    else translated('Use "{new}": {value} instead').format(
                        new=new, value=format_json(value_of(field.value)) if field.truth else format_json(field.value)
                    )
                ),
                spans=(config_span(config, ZERO, old), config_key_span(config, ZERO, new) if both else None),
                fixes=fix_with_edits(
                    (translated("remove {old}") if both else translated("use {new}")).format(old=old, new=new), *makers
                ),
            )
