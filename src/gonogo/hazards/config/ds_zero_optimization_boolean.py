from gonogo.hazards.facts.deepspeed_settings import ZERO, config_span, is_read_as_json
from gonogo.hazards.facts.training_framework import fix_with_edits, format_json, uses_accelerate
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Severity, translated


class DsZeroOptimizationBoolean(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """``true`` or ``false`` instead of an object."""
        field = config.raw(ZERO)
        if not field.known or not isinstance(field.value, bool):
            return
        stops = bool(is_read_as_json(run) or uses_accelerate(run))
        stage = int(field.value)
        yield self.finding(
            translated("zero_optimization is {value}: DeepSpeed reads it as stage {stage}{more}.").format(
                value=format_json(field.value),
                stage=stage,
                more=translated(", but transformers and accelerate expect an object and fail") if stops else "",
            ),
            severity=Severity.ERROR if stops else Severity.NOTE,
            cure=translated('Replace it with an object: {{"stage": {stage}}}').format(stage=stage),
            spans=config_span(config, ZERO),
            fixes=fix_with_edits(
                translated("replace the value with an object"), lambda: config.replacing(ZERO, value={"stage": stage})
            ),
        )
