from gonogo.hazards.facts.deepspeed_settings import ZERO, config_key_span, config_span, has_fused_adam
from gonogo.hazards.facts.training_framework import fix_with_edits, format_json
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, translated


class DsOffloadOptimizerWithoutZero(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """An offload device at stage 0."""
        if config.zero_stage != 0:
            return
        device = config.offload_target("optimizer")
        if not device.known or device.value == "none":
            return
        key = "offload_optimizer" if config.raw(ZERO, "offload_optimizer").known else "cpu_offload"
        yield self.finding(
            self.texts["cause"].format(key=key, device=format_json(device.value)),
            certainty=Certainty.CERTAIN if has_fused_adam(config) else Certainty.LIKELY,
            cure=(
                translated('Set "stage" to 1, 2 or 3: ZeRO is what moves the optimizer states to the CPU'),
                translated("Or remove {key}").format(key=key),
            ),
            spans=(
                config_span(config, ZERO, "stage") or config_span(config, ZERO, key),
                config_key_span(config, ZERO, key),
            ),
            fixes=fix_with_edits(
                translated("use ZeRO-2"), lambda: config.inserting(ZERO, "stage", value=2), safe=False
            ),
        )
