from gonogo.hazards.facts.deepspeed_settings import config_span, is_read_as_json, optimizer_type
from gonogo.hazards.facts.training_framework import fix_with_edits, uses_accelerate
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, translated

_WARMUP_MAX_LR_KEYS = ("scheduler", "params", "warmup_max_lr")


class DsOptimizerWithoutLearningRate(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A named optimizer without lr, and no scheduler that sets one."""
        name = optimizer_type(config)
        if name is None or name.lower() not in ("adam", "adamw", "lion"):
            return
        rates = (("optimizer", "params", "lr"), ("optimizer", "params", "learning_rate"), _WARMUP_MAX_LR_KEYS)
        if not all(config.raw(*keys).absent for keys in rates):
            return  # DeepSpeed rejects "learning_rate": nothing trains with the default
        trainer = uses_accelerate(run) or is_read_as_json(run)
        wanted = run.arguments.get("learning_rate").number
        if wanted == 0.001:
            return
        yield self.finding(
            translated('The optimizer {name} has no "lr": it trains with its default of 0.001{instead}.').format(
                name=name,
                instead=translated(", not with --learning_rate {wanted}").format(wanted=wanted)
                if wanted is not None
                else "",
            ),
            certainty=Certainty.CERTAIN if wanted is not None else Certainty.LIKELY,
            severity=Severity.ERROR if wanted is not None else Severity.WARNING,
            cure=(
                translated('Set "lr" to "auto", which transformers fills in')
                if trainer is not False
                else translated('Set "lr" to {rate}').format(rate=2e-5 if wanted is None else wanted)
            ),
            spans=(config_span(config, "optimizer", "type"), run.arguments.get("learning_rate").span()),
            fixes=fix_with_edits(
                translated("leave it to the training arguments"),
                lambda: config.inserting("optimizer", "params", "lr", value="auto"),
                safe=False,
            )
            if trainer
            else (),
        )
