from gonogo.hazards.config_rule import Change, ConfigHazard, number
from gonogo.hazards.rule import Certainty, Severity, Text


class DsSubGroupSizeTiny(ConfigHazard):
    """sub_group_size is below a million elements at stage 3.
    ## What happens
    The optimizer step takes many times as long: one call of the optimizer a sub-group, thousands of them.
    ## Why
    ZeRO-3 updates sub_group_size elements at a time. The size is to be lowered only when memory runs out in the
    step, and then to 1e8.
    ## Example
    ```json
    "sub_group_size": 1000    // wrong
    "sub_group_size": 1e9     // right
    ```
    ## Cure
    Leave it at 1e9, the default.
    ## When it is safe
    For tiny models in tests.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/1145: when to change the size
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: sub_group_size
    """

    name = "ds-sub-group-size-tiny"
    title = Text("sub_group_size cuts the optimizer step into very many pieces", "sub_group_size 把优化器更新切得过碎")

    keys = ("zero_optimization.sub_group_size",)
    stages = (3,)
    wrong = number(lambda size: 0 < size < 1_000_000)
    severity, certainty = Severity.WARNING, Certainty.LIKELY
    cause = Text(
        "{key} is {number:,.0f}: the optimizer is called once for every {number:,.0f} parameters of a rank.",
        "{key} 为 {number:,.0f}：每个 rank 的参数每 {number:,.0f} 个就要调用一次优化器。",
    )
    cure = Text("Write 1e9, or 1e8 where the step runs out of memory", "写 1e9；若更新时显存不足，写 1e8")
    change = Change(Text("take the default", "使用默认值"), to=1_000_000_000, safe=False)
