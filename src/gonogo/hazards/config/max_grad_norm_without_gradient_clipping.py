from gonogo.hazards.facts.training_framework import fix_with_edits, is_config_from_accelerate_yaml, uses_trainer
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, translated


class MaxGradNormWithoutGradientClipping(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """max_grad_norm is given, and the DeepSpeed config has no gradient_clipping."""
        norm = run.arguments.get("max_grad_norm")
        if not norm.number or not config.raw("gradient_clipping").absent or not uses_trainer(run):
            return
        if run.framework == "ms-swift" or config.preset is not None or is_config_from_accelerate_yaml(run):
            return
        yield self.finding(
            self.texts["cause"].format(norm=norm.number),
            spans=norm.span(),
            fixes=fix_with_edits(
                translated('Add "gradient_clipping": "auto"'),
                lambda: config.inserting("gradient_clipping", value="auto"),
                safe=False,
            ),
        )
