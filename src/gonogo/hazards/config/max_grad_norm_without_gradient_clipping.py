from gonogo.hazards.facts.how_it_trains import fix_of, from_accelerate_yaml, with_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, Text


class MaxGradNormWithoutGradientClipping(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The argument is given, and the config lacks the key."""
        norm = run.arguments.get("max_grad_norm")
        if not norm.number or not config.raw("gradient_clipping").absent or not with_trainer(run):
            return
        if run.framework == "ms-swift" or config.preset is not None or from_accelerate_yaml(run):
            return
        yield self.finding(
            Text(
                "max_grad_norm is {norm}, and the DeepSpeed config has no gradient_clipping: nothing is clipped.",
                "max_grad_norm 为 {norm}，而 DeepSpeed 配置中没有 gradient_clipping：不会做任何裁剪。",
            ).format(norm=norm.number),
            severity=Severity.WARNING,
            certainty=Certainty.LIKELY,
            cure=Text(
                'Add "gradient_clipping": "auto" to the DeepSpeed config',
                '在 DeepSpeed 配置中加入 "gradient_clipping": "auto"',
            ),
            spans=norm.span(),
            fixes=fix_of(
                Text('Add "gradient_clipping": "auto"', '加入 "gradient_clipping": "auto"'),
                lambda: config.inserting("gradient_clipping", value="auto"),
                safe=False,
            ),
        )
