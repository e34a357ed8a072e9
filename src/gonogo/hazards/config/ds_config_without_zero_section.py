from gonogo.hazards.facts.how_it_trains import fix_of, with_accelerate, with_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Text

_CONFIRM = Text("transformers is 4.30 or newer", "transformers 为 4.30 或更新版本")


class DsConfigWithoutZeroSection(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The block is surely missing, and accelerate surely reads the config."""
        if not config.readable or config.problems or not config.raw("zero_optimization").absent:
            return
        if config.source is None or not with_accelerate(run) or run.launch is None:
            return
        if run.environment.within("transformers", "<4.30"):
            return
        insists = not with_trainer(run) or bool(run.environment.within("transformers", ">=4.30"))
        first = next((place for keys, _ in config.entries() if (place := config.key_place(*keys)) is not None), None)
        yield self.finding(
            Text(
                '{name} has no "zero_optimization", which accelerate requires of a DeepSpeed config.',
                '{name} 中没有 "zero_optimization"，而 accelerate 要求 DeepSpeed 配置必须有它。',
            ).format(name=config.name),
            certainty=Certainty.CERTAIN if insists else Certainty.LIKELY,
            confirm=() if insists else (_CONFIRM,),
            cure=Text(
                'Add "zero_optimization": {"stage": 2} (0 for DeepSpeed without ZeRO)',
                '加入 "zero_optimization": {"stage": 2}（不用 ZeRO 时写 0）',
            ),
            spans=(
                (first or config.source.place(0, 0)).span(),
                run.config_field.span(Text("given to accelerate here", "在此处交给 accelerate")),
            ),
            fixes=fix_of(
                Text('Add "zero_optimization" with stage 0', '加入 stage 为 0 的 "zero_optimization"'),
                lambda: config.inserting("zero_optimization", value={"stage": 0}),
            ),
        )
