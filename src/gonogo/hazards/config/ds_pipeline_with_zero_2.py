from gonogo.hazards.facts.deepspeed_settings import ZERO, config_span
from gonogo.hazards.facts.training_framework import fix_with_edits
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, translated


class DsPipelineWithZero2(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Stage 2 or 3 together with a PipelineModule in one of the run's scripts."""
        if config.zero_stage not in (2, 3):
            return
        calls = (call for script in run.scripts for call in script.calls("*.PipelineModule", "*.LayerSpec"))
        call = next(calls, None)
        if call is None:
            return
        yield self.finding(
            self.texts["cause"].format(stage=config.zero_stage),
            certainty=Certainty.CERTAIN if call.name.endswith("PipelineModule") else Certainty.LIKELY,
            spans=(config_span(config, ZERO, "stage"), call.place.span()),
            fixes=fix_with_edits(
                translated("use ZeRO-1"), lambda: config.replacing(ZERO, "stage", value=1), safe=False
            ),
        )
