from gonogo.hazards.facts.deepspeed_settings import (
    ZERO,
    config_span,
    deepspeed_version_matches,
    describe_deepspeed_version,
    optimizer_type,
)
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, translated


class DsOnebitOptimizerWithZero(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A 1-bit optimizer with ZeRO on, or with a DeepSpeed version that no longer has it."""
        name = optimizer_type(config) or ""
        if name.lower() not in ("onebitadam", "zerooneadam", "onebitlamb"):
            return
        stage = config.zero_stage
        gone = deepspeed_version_matches(run, ">=0.19.7")
        if not stage and not gone:
            return
        cause = (
            translated("{deepspeed} no longer has the optimizer {name}: it was removed in 0.19.7.").format(
                deepspeed=describe_deepspeed_version(run), name=name
            )
            if gone
            else translated("{name} does not work with ZeRO, and ZeRO-{stage} is on: DeepSpeed refuses it.").format(
                name=name, stage=stage
            )
        )
        yield self.finding(
            cause,
            cure=translated('Use "AdamW"; drop parameters such as freeze_step and cuda_aware along with {name}').format(
                name=name
            ),
            spans=(config_span(config, "optimizer", "type"), config_span(config, ZERO, "stage")),
        )
