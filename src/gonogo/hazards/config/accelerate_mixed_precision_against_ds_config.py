from gonogo.hazards.facts.training_framework import fix_with_edits, uses_accelerate, uses_trainer
from gonogo.hazards.rule import DeepSpeedConfig, Field, Findings, Hazard, Run, translated

_OTHER_PRECISION = {"fp16": "bf16", "bf16": "fp16", "fp8": "fp16"}


class AccelerateMixedPrecisionAgainstDsConfig(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A dtype enabled in the config that differs from the mixed precision requested of accelerate."""
        requested = _requested_precision(run)
        if requested is None or run.launch is None or uses_accelerate(run) is False:
            return
        wanted = str(requested.value).lower()
        other = _OTHER_PRECISION.get(wanted)
        enabled = config.raw(other, "enabled") if other else Field.missing()
        if enabled.truth is not True or config.raw(wanted, "enabled").truth is True:
            return
        yield self.finding(
            translated("accelerate is set to {wanted}, but the DeepSpeed config has {other} enabled.").format(
                wanted=wanted, other=other
            ),
            cure=translated('Set {other}.enabled to "auto" in the config, or set accelerate to {other}').format(
                other=other
            ),
            spans=(enabled.span(), requested.span(translated("requested here"))),
            fixes=fix_with_edits(
                translated('Set "enabled" to "auto"'), lambda: config.replacing(str(other), "enabled", value="auto")
            ),
        )


def _requested_precision(run: Run) -> Field | None:
    """The mixed precision requested of accelerate, by the Accelerator in the script or the launcher's option."""
    if uses_trainer(run):
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
