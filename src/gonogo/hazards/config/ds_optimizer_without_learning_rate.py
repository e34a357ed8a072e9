from gonogo.hazards.facts.deepspeed_settings import optimizer_type, read_by_json, span_in
from gonogo.hazards.facts.how_it_trains import fix_of, with_accelerate
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, Text

_WARMED_UP_TO = ("scheduler", "params", "warmup_max_lr")

_WARMED_UP_TO = ("scheduler", "params", "warmup_max_lr")


class DsOptimizerWithoutLearningRate(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """An optimizer by name without lr, and no scheduler that gives one."""
        name = optimizer_type(config)
        if name is None or name.lower() not in ("adam", "adamw", "lion"):
            return
        rates = (("optimizer", "params", "lr"), ("optimizer", "params", "learning_rate"), _WARMED_UP_TO)
        if not all(config.raw(*keys).absent for keys in rates):
            return  # DeepSpeed refuses "learning_rate": nothing trains with the default
        trainer = with_accelerate(run) or read_by_json(run)
        wanted = run.arguments.get("learning_rate").number
        if wanted == 0.001:
            return
        yield self.finding(
            Text(
                'The optimizer {name} has no "lr": it trains with its default of 0.001{instead}.',
                "优化器 {name} 没有 “lr”：将以默认值 0.001 训练{instead}。",
            ).format(
                name=name,
                instead=Text(", not with --learning_rate {wanted}", "，而不是 --learning_rate {wanted}").format(
                    wanted=wanted
                )
                if wanted is not None
                else "",
            ),
            certainty=Certainty.CERTAIN if wanted is not None else Certainty.LIKELY,
            severity=Severity.ERROR if wanted is not None else Severity.WARNING,
            cure=(
                Text('Write "lr": "auto", which transformers fills in', "写 “lr”: “auto”，由 transformers 填充")
                if trainer is not False
                else Text('Write "lr": {rate}', "写 “lr”: {rate}").format(rate=2e-5 if wanted is None else wanted)
            ),
            spans=(span_in(config, "optimizer", "type"), run.arguments.get("learning_rate").span()),
            fixes=fix_of(
                Text("leave it to the training arguments", "交由训练参数决定"),
                lambda: config.inserting("optimizer", "params", "lr", value="auto"),
                safe=False,
            )
            if trainer
            else (),
        )
