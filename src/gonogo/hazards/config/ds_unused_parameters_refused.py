from gonogo.hazards.config_rule import Change, ConfigHazard, false
from gonogo.hazards.rule import Certainty, Pattern, Refusal, Severity, Text


class DsUnusedParametersRefused(ConfigHazard):
    """ignore_unused_parameters is false at stage 2.
    ## What happens
    A step in which some parameter gets no gradient (a modality that is not in the batch, a frozen branch) stops
    with "This assert indicates that your module has parameters that were not used in producing loss".
    ## Why
    The default, true, skips such parameters.
    ## Example
    ```json
    "zero_optimization": {"stage": 2, "ignore_unused_parameters": false}    // wrong
    "zero_optimization": {"stage": 2}                                       // right
    ```
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
    title = Text("ZeRO-2 is told to stop at parameters without a gradient", "ZeRO-2 被设为遇到没有梯度的参数就停止")
    traces = ("outputs participate in calculating loss",)
    refusal = Refusal(
        Pattern(r"This assert indicates that your module has parameters|enable ignore_unused_parameters option in zero")
    )

    keys = ("zero_optimization.ignore_unused_parameters",)
    stages = (2,)
    wrong = false
    severity, certainty = Severity.WARNING, Certainty.POSSIBLE
    cause = Text(
        "{key} is false: a step in which any parameter gets no gradient stops the run.",
        "{key} 为 false：只要有一步中某个参数没有梯度，运行就会停止。",
    )
    cure = Text("Remove the key: true is the default", "去掉该键：默认值为 true")
    confirm = Text("Whether every parameter is used at every step", "确认每一步是否都用到所有参数")
    change = Change(Text("take the default", "使用默认值"), safe=False)
