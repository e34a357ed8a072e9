from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gonogo.hazards.facts.deepspeed_settings import config_span
from gonogo.hazards.facts.training_framework import fix_with_edits
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, Text, translated


class _UnusableValue(NamedTuple):
    """A test for unusable values of a loss-scale setting, with the cause, the severity and a usable value."""

    key: str
    test: Callable[[float], bool]
    good: int
    severity: Severity
    cause: Text


_UNUSABLE_VALUES = (
    _UnusableValue(
        *("loss_scale", lambda scale: scale < 0, 0, Severity.ERROR), translated('"loss_scale" is {value}, below 0.')
    ),
    _UnusableValue(
        *("loss_scale", lambda scale: scale > 65504, 0, Severity.ERROR),
        translated(
            'The fixed "loss_scale" of {value:,.0f} exceeds what fp16 can hold (65,504): every step overflows '
            "and is skipped."
        ),
    ),
    _UnusableValue(
        *("loss_scale_window", lambda window: window <= 0, 1000, Severity.ERROR),
        translated('"loss_scale_window" is {value}, and DeepSpeed divides by it.'),
    ),
    _UnusableValue(
        *("min_loss_scale", lambda lowest: lowest <= 0, 1, Severity.WARNING),
        translated('"min_loss_scale" is {value}: the loss scale may fall to 0, and gradients with it.'),
    ),
    _UnusableValue(
        *("initial_scale_power", lambda power: power > 32, 16, Severity.WARNING),  # 32 was the default for years
        translated("The loss scale starts at 2^{value}: about {skipped} steps are skipped until it fits."),
    ),
)


class DsFp16LossScaleUnusable(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Each setting that makes steps fail or be skipped, if fp16 may be on."""
        enabled = config.get("fp16", "enabled").truth
        if enabled is False or config.raw("fp16").absent or config.raw("fp16", "enabled").absent:
            return
        fixed = config.raw("fp16", "loss_scale").number
        for key, test, good, severity, cause in _UNUSABLE_VALUES:
            value = config.raw("fp16", key).number
            if value is None or not test(value) or (fixed and key != "loss_scale"):
                continue
            yield self.finding(
                cause.format(value=value, skipped=int(value) - 16),
                certainty=Certainty.CERTAIN if enabled else Certainty.LIKELY,
                severity=severity,
                cure=translated('Set "{key}" to {good}').format(key=key, good=good),
                spans=config_span(config, "fp16", key),
                fixes=fix_with_edits(
                    translated("set the value to {good}").format(good=good),
                    partial(config.replacing, "fp16", key, value=good),
                    safe=False,
                ),
            )
