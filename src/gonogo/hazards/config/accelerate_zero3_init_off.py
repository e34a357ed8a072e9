from gonogo.hazards.facts.training_framework import fix_with_edits
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run, translated


class AccelerateZero3InitOff(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """zero3_init_flag: false in accelerate's YAML, with stage 3 and an accelerate version that respects it."""
        yaml = run.accelerate
        if yaml is None or not yaml.enables_deepspeed:
            return
        flag = yaml.get("deepspeed_config", "zero3_init_flag")
        if flag.truth is not False or run.zero_stage != 3:
            return
        heeds = environment.within("accelerate", "<1.0")
        if heeds is False or (run.launch is not None and "deepspeed" in run.launch.options):
            return  # the Trainer's own --deepspeed enables it in transformers
        version = environment.field("accelerate")
        stage = yaml.get("deepspeed_config", "zero_stage")
        yield self.finding(
            self.texts["cause"].format(version=version.get("< 1.0")),
            certainty=Certainty.LIKELY if heeds else Certainty.POSSIBLE,
            spans=(flag.span(), stage.span(translated("ZeRO-3 is on")), version.span()),
            fixes=fix_with_edits(
                translated("Set zero3_init_flag to true"),
                lambda: yaml.replacing("deepspeed_config", "zero3_init_flag", value=True),
                safe=False,
            ),
        )
