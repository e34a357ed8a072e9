from gonogo.hazards.config_rule import Change, ConfigHazard, true
from gonogo.hazards.rule import Pattern, Refusal, Text


class DsLegacyStage1(ConfigHazard):
    """legacy_stage1 is true.
    ## What happens
    "Exception: The deprecated version of ZeRO Stage 1 is not supported in deepspeed >= 0.5.9".
    ## Why
    The key is still read, only to say so.
    ## Example
    ```json
    "zero_optimization": {"stage": 1, "legacy_stage1": true}    // wrong
    "zero_optimization": {"stage": 1}                           // right
    ```
    ## Cure
    Remove it: today's stage 1 takes its place.
    ## When it is safe
    `false`, the default.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: the exception
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: legacy_stage1
    """

    name = "ds-legacy-stage1"
    raises = True
    title = Text("The old ZeRO-1 is gone", "旧的 ZeRO-1 实现已被移除")
    refusal = Refusal(Pattern(r"The deprecated version of ZeRO Stage 1 is not supported"))

    keys = ("zero_optimization.legacy_stage1",)
    stages = (1, 2, 3, None)
    wrong = true
    cause = Text(
        "{key} is true: DeepSpeed from 0.5.9 on stops there.", "{key} 为 true：DeepSpeed 自 0.5.9 起会因此停止。"
    )
    cure = Text("Remove the key", "去掉该键")
    change = Change(Text("remove the key", "去掉该键"))
