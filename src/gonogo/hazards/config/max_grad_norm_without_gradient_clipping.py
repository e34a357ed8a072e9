from gonogo.hazards.facts.how_it_trains import fix_of, from_accelerate_yaml, with_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, Text


class MaxGradNormWithoutGradientClipping(Hazard):
    """max_grad_norm is given, and the DeepSpeed config does not clip.
    ## What happens
    Gradients are not clipped, whatever `--max_grad_norm` says: a spike of the gradient norm reaches the weights, and
    the loss may diverge. No message says so.
    ## Why
    Under DeepSpeed only its engine clips, by `gradient_clipping` of its config, whose default is 0 (off). The
    Trainer's own clipping does nothing there; it only fills in `"gradient_clipping": "auto"`.
    ## Example
    ```json
    // --max_grad_norm 0.3
    {"zero_optimization": {"stage": 2}}                                   // wrong: nothing is clipped
    {"zero_optimization": {"stage": 2}, "gradient_clipping": "auto"}      // right
    ```
    ## Cure
    Add `"gradient_clipping": "auto"` to the DeepSpeed config.
    ## When it is safe
    Where no clipping is wanted.
    ## Sources
    - https://github.com/axolotl-ai-cloud/axolotl/issues/1381: max_grad_norm ignored, cured by "auto"
    - https://github.com/axolotl-ai-cloud/axolotl/pull/1382: the combinations, measured
    """

    name = "max-grad-norm-without-gradient-clipping"
    title = Text(
        "max_grad_norm has no effect: the DeepSpeed config has no gradient_clipping",
        "max_grad_norm 不起作用：DeepSpeed 配置中没有 gradient_clipping",
    )

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
