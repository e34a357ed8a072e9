from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, Text


class DsUnusedParametersRefused(Hazard):
    """ignore_unused_parameters is false at stage 2.

    ## What happens
    A step in which some parameter gets no gradient (a modality that is not in the batch, a frozen branch) stops
    with "This assert indicates that your module has parameters that were not used in producing loss".

    ## Why
    The default, true, skips such parameters.

    ## Cure
    Remove the key, unless every parameter is used at every step.

    ## When it is safe
    In static models, as a check.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py: the assertion
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py:
      ignore_unused_parameters
    """

    name = "ds-unused-parameters-refused"
    title = Text(
        en="ZeRO-2 is told to stop at parameters without a gradient", zh="ZeRO-2 被设为遇到没有梯度的参数就停止"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The switch off at stage 2; likelier to hurt in a model of several modalities."""
        if config.raw(ZERO, "ignore_unused_parameters").truth is not False or config.zero_stage != 2:
            return
        yield self.finding(
            Text(
                en="ignore_unused_parameters is false: a step in which any parameter gets no gradient stops the run.",
                zh="ignore_unused_parameters 为 false：只要有一步中某个参数没有梯度，运行就会停止。",
            ),
            severity=Severity.WARNING,
            certainty=Certainty.POSSIBLE,
            cure=(Text("Remove the key: true is the default", "去掉该键：默认值为 true"),),
            spans=(span_in(config, ZERO, "ignore_unused_parameters"),),
            confirm=(Text("Whether every parameter is used at every step", "确认每一步是否都用到所有参数"),),
            fixes=fix_of(
                Text("take the default", "使用默认值"),
                lambda: config.removing(ZERO, "ignore_unused_parameters"),
                safe=False,
            ),
        )
