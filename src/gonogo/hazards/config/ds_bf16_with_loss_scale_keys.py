from collections.abc import Mapping

from gonogo.hazards.facts.deepspeed_settings import config_span, deepspeed_version_matches, describe_deepspeed_version
from gonogo.hazards.facts.training_framework import fix_with_edits
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, translated

_LOSS_SCALE = (
    *("loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale"),
    *("consecutive_hysteresis", "auto_cast", "fp16_master_weights_and_grads"),
)


class DsBf16WithLossScaleKeys(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Any of fp16's keys in bf16, even if that is not enabled: DeepSpeed validates the section anyway."""
        section = config.raw("bf16")
        if not section.known or not isinstance(section.value, Mapping):
            return
        extra = [key for key in _LOSS_SCALE if key in section.value and section.value[key] != "auto"]
        refused = deepspeed_version_matches(run, ">=0.17.2")
        if not extra or deepspeed_version_matches(run, "<=0.17.0"):
            return
        left = {key: value for key, value in section.value.items() if key not in _LOSS_SCALE}
        yield self.finding(
            self.texts["cause"].format(
                keys=", ".join(extra),
                version=translated(", and the run has {version}").format(version=describe_deepspeed_version(run))
                if refused
                else "",
            ),
            certainty=Certainty.CERTAIN if refused else Certainty.POSSIBLE,
            spans=tuple(config_span(config, "bf16", key) for key in extra),
            fixes=fix_with_edits(
                translated("remove what bf16 does not use"), lambda: config.replacing("bf16", value=left)
            ),
        )
