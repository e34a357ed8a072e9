from gonogo.hazards.facts.training_framework import fix_with_edits, uses_stock_training_arguments
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, translated

_WARMUP_STEPS_KEYS = ("scheduler", "params", "warmup_num_steps")
_WARMUP_SCHEDULERS = ("WarmupLR", "WarmupDecayLR")


class DsAutoWarmupStepsZero(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """An "auto" that this transformers fills in with 0, which DeepSpeed rejects."""
        if config.raw("scheduler", "type").get() not in _WARMUP_SCHEDULERS:
            return
        refuses = run.environment.within("deepspeed", ">=0.19.6")
        if refuses is not True:
            return
        steps = config.raw(*_WARMUP_STEPS_KEYS)
        if not config.is_auto(*_WARMUP_STEPS_KEYS) or not self._fills_in_zero(run):
            return
        deepspeed = run.environment.field("deepspeed")
        transformers = run.environment.field("transformers")
        yield self.finding(
            self.texts["cause"].format(transformers=transformers.get("<5.20"), deepspeed=deepspeed.get(">=0.19.6")),
            spans=(steps.span(), deepspeed.span(translated("this release rejects 0")), transformers.span()),
            fixes=fix_with_edits(
                translated("Set warmup_num_steps to 1"),
                lambda: config.replacing(*_WARMUP_STEPS_KEYS, value=1),
                safe=False,
            ),
        )

    def _fills_in_zero(self, run: Run) -> bool:
        """Whether the Trainer has no warmup configured and is of a release that fills in 0, not 1."""
        if not uses_stock_training_arguments(run) or run.launch is None:
            return False
        if run.environment.within("transformers", "<5.20") is not True:
            return False
        return all(run.arguments.get(name).absent for name in ("warmup_steps", "warmup_ratio"))
