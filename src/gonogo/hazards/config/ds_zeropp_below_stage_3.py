from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, given
from gonogo.hazards.rule import Severity, Text


class DsZeroppBelowStage3(ConfigHazard):
    """zero_hpz_partition_size, zero_quantized_weights or zero_quantized_gradients is set at stage 1 or 2.
    ## What happens
    The run starts, communicates as much as before, and is not faster.
    ## Why
    ZeRO++ works on what only stage 3 has: partitioned parameters and their all-gathers.
    ## Example
    ```json
    "zero_optimization": {"stage": 2, "zero_hpz_partition_size": 8}    // wrong: no effect
    "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}    // right
    ```
    ## Cure
    Take stage 3, or remove the keys.
    ## When it is safe
    `zero_hpz_partition_size` of 1 and `false` are the defaults.
    ## Sources
    - https://www.deepspeed.ai/tutorials/zeropp/: ZeRO++ with stage 3
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: the settings go to the
      stage-3 optimizer only
    """

    name = "ds-zeropp-below-stage-3"
    title = Text("A ZeRO++ setting stands below stage 3, which has no effect", "在 stage 3 以下设置了 ZeRO++，不起作用")

    keys = (
        "zero_optimization.zero_hpz_partition_size",
        "zero_optimization.zero_quantized_weights",
        "zero_optimization.zero_quantized_nontrainable_weights",
        "zero_optimization.zero_quantized_gradients",
    )
    stages = (0, 1, 2)
    wrong = given
    severity = Severity.WARNING
    cause = Text(
        '"{key}" is {value} at stage {stage}; it has an effect at stage 3 only.',
        "“{key}” 的值是 {value}，而 stage 为 {stage}；它只在 stage 3 起作用。",
    )
    cure = (Text('Set "stage": 3', "设置 “stage”: 3"), Text("Or remove {key}", "或去掉 {key}"))
    beside = ("zero_optimization.stage",)
    change = Change(Text("remove {key}", "去掉 {key}"))

    def around(self, at: Setting) -> Words | None:
        """It has another value than the default."""
        size = at.keys[-1] == "zero_hpz_partition_size"
        return {} if ((at.field.number or 0) > 1 if size else at.field.truth) else None
