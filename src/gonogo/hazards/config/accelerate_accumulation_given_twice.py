from gonogo.hazards.facts.training_framework import is_config_from_accelerate_yaml, uses_trainer
from gonogo.hazards.rule import Field, Findings, Hazard, Run, Script, translated


class AccelerateAccumulationGivenTwice(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """gradient_accumulation_steps of the Accelerator that contradicts the DeepSpeed JSON or accelerate's YAML."""
        if run.launch is None or uses_trainer(run) or not run.uses_deepspeed:
            return
        used = _configured_accumulation_steps(run)
        if used is None or not used.known or not isinstance(used.value, int):
            return
        for call in script.calls("accelerate.Accelerator"):
            requested = call.keyword("gradient_accumulation_steps")
            if not isinstance(requested.value, int) or not requested.known or requested.value == used.value:
                continue
            yield self.finding(
                self.texts["cause"].format(asked=requested.value, used=used.value),
                cure=(
                    translated('Set "gradient_accumulation_steps" to "auto" in the DeepSpeed JSON')
                    if run.config is not None
                    and run.config.source is not None
                    and not is_config_from_accelerate_yaml(run)
                    else translated("Set gradient_accumulation_steps to {asked} in accelerate's YAML").format(
                        asked=requested.value
                    ),
                    translated("Or create the Accelerator with {used}, if that is intended").format(used=used.value),
                ),
                spans=(used.span(), requested.span(translated("the script's value"))),
            )


def _configured_accumulation_steps(run: Run) -> Field | None:
    if run.config is not None and run.config.source is not None:
        return run.config.raw("gradient_accumulation_steps")
    if run.accelerate is not None and run.accelerate.enables_deepspeed:
        return run.accelerate.get("deepspeed_config", "gradient_accumulation_steps")
    return None
