from collections.abc import Mapping
from functools import partial
from typing import Any

from gonogo.hazards.facts.deepspeed_settings import ZERO, config_span, dotted_key
from gonogo.hazards.facts.training_framework import fix_with_edits, format_json
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, translated

# The sections, each with the key that a bare value may stand for.
_SECTIONS: dict[tuple[str, ...], str] = {
    (ZERO,): "stage",
    (ZERO, "offload_optimizer"): "device",
    (ZERO, "offload_param"): "device",
    **{(name,): "enabled" for name in ("bf16", "fp16", "tensorboard", "wandb", "csv_monitor", "comet")},
    ("hybrid_engine",): "enabled",
    **{(name,): "type" for name in ("optimizer", "scheduler", "pipeline", "checkpoint")},
}
_SHORTHAND_VALUES = {"stage": (1, 2, 3), "device": ("cpu", "nvme", "none"), "enabled": (True, False)}
_NULLABLE_SECTIONS = ("offload_optimizer", "offload_param")


class DsConfigSectionNotAnObject(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Sections whose value is neither an object nor a supported shorthand."""
        for keys, short in _SECTIONS.items():
            field = config.raw(*keys)
            if not field.known or isinstance(field.value, Mapping):
                continue
            oldest = keys == (ZERO,) and isinstance(field.value, bool)
            if oldest or (field.value is None and keys[-1] in _NULLABLE_SECTIONS):
                continue
            if field.value == "auto" and len(keys) > 1:
                continue
            whole = _expand_shorthand(short, field.value)
            yield self.finding(
                self.texts["cause"].format(key=dotted_key(keys), value=format_json(field.value)),
                cure=translated('Use an object instead: "{key}": {whole}').format(
                    key=keys[-1], whole=format_json(whole) if whole else _object_example(field.value)
                ),
                spans=config_span(config, *keys),
                fixes=fix_with_edits(
                    translated("replace the value with an object"), partial(config.replacing, *keys, value=whole)
                )
                if whole
                else (),
            )


def _expand_shorthand(key: str, value: Any) -> dict[str, Any] | None:
    """The object that a shorthand value stands for; None if that is unclear."""
    if key == "device" and value is True:  # as in the older cpu_offload
        return {"device": "cpu"}
    meant = any(value is one or (isinstance(value, str) and value == one) for one in _SHORTHAND_VALUES.get(key, ()))
    return {key: value} if meant else None


def _object_example(value: Any) -> str:
    """An outline of the object; a string becomes its type, as for an optimizer or a scheduler."""
    return f'{{"type": "{value}", "params": {{ … }}}}' if isinstance(value, str) else "{ … }"
