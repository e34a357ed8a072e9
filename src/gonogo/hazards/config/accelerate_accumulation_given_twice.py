from gonogo.hazards.facts.how_it_trains import from_accelerate_yaml, with_trainer
from gonogo.hazards.rule import Certainty, Field, Findings, Hazard, Run, Script, Severity, Text


class AccelerateAccumulationGivenTwice(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """The keyword of the Accelerator, against the JSON or the YAML."""
        if run.launch is None or with_trainer(run) or not run.deepspeed_on:
            return
        used = _effective_accumulation(run)
        if used is None or not used.known or not isinstance(used.value, int):
            return
        for call in script.calls("accelerate.Accelerator"):
            asked = call.keyword("gradient_accumulation_steps")
            if not isinstance(asked.value, int) or not asked.known or asked.value == used.value:
                continue
            yield self.finding(
                Text(
                    "The Accelerator is created with gradient_accumulation_steps={asked}, and DeepSpeed is configured "
                    "with {used}: {used} is used.",
                    "Accelerator 的 gradient_accumulation_steps={asked}，而 DeepSpeed 配置为 {used}：实际使用 {used}。",
                ).format(asked=asked.value, used=used.value),
                severity=Severity.WARNING,
                certainty=Certainty.LIKELY,
                cure=(
                    Text(
                        'Write "gradient_accumulation_steps": "auto" in the DeepSpeed JSON',
                        '在 DeepSpeed JSON 中写 "gradient_accumulation_steps": "auto"',
                    )
                    if run.config is not None and run.config.source is not None and not from_accelerate_yaml(run)
                    else Text(
                        "Write gradient_accumulation_steps: {asked} in accelerate's YAML",
                        "在 accelerate 的 YAML 中写 gradient_accumulation_steps: {asked}",
                    ).format(asked=asked.value),
                    Text(
                        "Or make the Accelerator with {used}, if that is meant",
                        "若本意就是 {used}，改 Accelerator 的参数",
                    ).format(used=used.value),
                ),
                spans=(used.span(), asked.span(Text("the script's number", "脚本中的数字"))),
            )


def _effective_accumulation(run: Run) -> Field | None:
    if run.config is not None and run.config.source is not None:
        return run.config.raw("gradient_accumulation_steps")
    if run.accelerate is not None and run.accelerate.deepspeed_on:
        return run.accelerate.get("deepspeed_config", "gradient_accumulation_steps")
    return None
