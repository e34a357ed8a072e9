from gonogo.hazards.facts.how_it_trains import fix_of, with_accelerate, with_trainer
from gonogo.hazards.rule import DeepSpeedConfig, Field, Findings, Hazard, Run, Text

_OTHER = {"fp16": "bf16", "bf16": "fp16", "fp8": "fp16"}


class AccelerateMixedPrecisionAgainstDsConfig(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The type that is on in the config, against the one that accelerate is told."""
        asked = _asked_for(run)
        if asked is None or run.launch is None or with_accelerate(run) is False:
            return
        wanted = str(asked.value).lower()
        other = _OTHER.get(wanted)
        enabled = config.raw(other, "enabled") if other else Field.missing()
        if enabled.truth is not True or config.raw(wanted, "enabled").truth is True:
            return
        yield self.finding(
            Text(
                "accelerate is told {wanted}, and the DeepSpeed config has {other} enabled.",
                "告诉 accelerate 的是 {wanted}，而 DeepSpeed 配置启用了 {other}。",
            ).format(wanted=wanted, other=other),
            cure=Text(
                'Set {other}.enabled to "auto" in the config, or tell accelerate {other}',
                '在配置中把 {other}.enabled 设为 "auto"，或让 accelerate 用 {other}',
            ).format(other=other),
            spans=(enabled.span(), asked.span(Text("requested here", "此处要求"))),
            fixes=fix_of(
                Text('Set it to "auto"', '设为 "auto"'), lambda: config.replacing(str(other), "enabled", value="auto")
            ),
        )


def _asked_for(run: Run) -> Field | None:
    """What accelerate is told: by the Accelerator in the script, else by the option of its launcher."""
    if with_trainer(run):
        return None  # the Trainer's own arguments decide: ds-config-hf-args-mismatch
    for script in run.scripts:
        for call in script.calls("accelerate.Accelerator"):
            field = call.keyword("mixed_precision")
            if not field.absent:
                return field if field.known and field.value else None
    if run.launch is None or run.launch.launcher != "accelerate":
        return None
    option = run.launch.launcher_options.get("mixed_precision")
    return option if option.string else None
