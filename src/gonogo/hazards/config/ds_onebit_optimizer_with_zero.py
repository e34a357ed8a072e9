from gonogo.hazards.facts.deepspeed_settings import ZERO, newer_than, optimizer_type, span_in, version_words
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, translated


class DsOnebitOptimizerWithZero(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """One of the three by name, with ZeRO on or with a DeepSpeed that has none of them."""
        name = optimizer_type(config) or ""
        if name.lower() not in ("onebitadam", "zerooneadam", "onebitlamb"):
            return
        stage = config.zero_stage
        gone = newer_than(run, ">=0.19.7")
        if not stage and not gone:
            return
        cause = (
            translated("{deepspeed} has no optimizer {name} any more: it was removed in 0.19.7.").format(
                deepspeed=version_words(run), name=name
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
            spans=(span_in(config, "optimizer", "type"), span_in(config, ZERO, "stage")),
        )
