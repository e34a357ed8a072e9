from gonogo.hazards.facts.training_framework import fix_with_edits, uses_trainer
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, translated

# transformers' name for each of DeepSpeed's schedules.
_EQUIVALENT_TYPES = {
    "WarmupLR": ("constant_with_warmup", "constant"),
    "WarmupDecayLR": ("linear", "polynomial"),
    "WarmupCosineLR": ("cosine", "cosine_with_min_lr"),
}


class DsSchedulerOverridesLrSchedulerType(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A scheduler in the config that differs from the one in the arguments."""
        kind = config.raw("scheduler", "type")
        requested = run.arguments.get("lr_scheduler_type")
        if not kind.known or not requested.known or not uses_trainer(run):
            return
        same = _EQUIVALENT_TYPES.get(str(kind.value))
        wanted = str(requested.value).rpartition(".")[2].lower()
        if same is None or wanted in same:
            return
        meant = next((name for name, names in _EQUIVALENT_TYPES.items() if wanted in names), None)
        needs_one = not config.raw("optimizer").absent and run.environment.within("transformers", ">=4.33") is not True
        yield self.finding(
            self.texts["cause"].format(wanted=wanted, kind=kind.value, same=same[0]),
            cure=(
                translated('Remove the "scheduler" block from the DeepSpeed config'),
                *([translated('Or set the schedule in that block: "{meant}"').format(meant=meant)] if meant else []),
            ),
            spans=(kind.span(), requested.span(translated("requested here"))),
            fixes=()
            if needs_one
            else fix_with_edits(
                translated('Remove the "scheduler" block'), lambda: config.removing("scheduler"), safe=False
            ),
        )
