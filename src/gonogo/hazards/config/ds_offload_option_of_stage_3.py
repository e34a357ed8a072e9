from gonogo.hazards.facts.deepspeed_settings import ZERO, config_span
from gonogo.hazards.facts.training_framework import fix_with_edits, format_json
from gonogo.hazards.rule import DeepSpeedConfig, Finding, Findings, Hazard, Run, Severity, Text, translated


class DsOffloadOptionOfStage3(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """An offload option that only stage 3 uses, at a stage that is known and not 3."""
        stage = config.zero_stage
        if stage is None or stage == 3:
            return
        ratio = config.raw(ZERO, "offload_optimizer", "ratio")
        if ratio.number is not None and 0 <= ratio.number < 1:
            yield self._build_finding(
                config,
                "ratio",
                self.texts["ratio_cause"].format(value=format_json(ratio.value), stage=stage),
                Severity.ERROR,
            )
        elif config.raw(ZERO, "offload_optimizer", "super_offload").truth:
            yield self._build_finding(
                config, "super_offload", self.texts["super_offload_cause"].format(stage=stage), Severity.WARNING
            )

    def _build_finding(self, config: DeepSpeedConfig, key: str, cause: Text, severity: Severity) -> Finding:
        keys = (ZERO, "offload_optimizer", key)
        return self.finding(
            cause,
            severity=severity,
            cure=(translated('Set "stage": 3'), translated("Or remove {key}").format(key=key)),
            spans=(config_span(config, *keys), config_span(config, ZERO, "stage")),
            fixes=fix_with_edits(
                translated("remove {key}").format(key=key),
                lambda: config.removing(*keys),
                safe=severity is Severity.WARNING,
            ),
        )
