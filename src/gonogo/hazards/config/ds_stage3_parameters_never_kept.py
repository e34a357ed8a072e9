from gonogo.hazards.config_rule import ConfigHazard, number
from gonogo.hazards.rule import Severity, Text


class DsStage3ParametersNeverKept(ConfigHazard):
    """stage3_max_live_parameters or stage3_max_reuse_distance is 0.
    ## What happens
    Training is slower: each layer's weights are gathered once for the forward and again for the backward pass, also
    where they lie next to each other.
    ## Why
    The two limits let ZeRO-3 keep a parameter that is soon used again; 0 releases it at once, and turns prefetching
    off.
    ## Example
    ```json
    "stage3_max_reuse_distance": 0      // wrong
    "stage3_max_reuse_distance": 1e9    // right
    ```
    ## Cure
    Leave both at 1e9; lower them to 1e8 where memory is short.
    ## When it is safe
    Where every megabyte counts more than speed.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/2869: what the two limits do
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: max_live_parameters,
      max_reuse_distance
    """

    name = "ds-stage3-parameters-never-kept"
    title = Text("ZeRO-3 fetches every parameter anew at each use", "ZeRO-3 每次使用参数都要重新获取")

    keys = ("zero_optimization.stage3_max_live_parameters", "zero_optimization.stage3_max_reuse_distance")
    stages = (3,)
    wrong = number(lambda limit: limit == 0)
    severity = Severity.NOTE
    cause = Text(
        "{key} is 0: parameters are released right after each use and gathered again for the next.",
        "{key} 为 0：参数每次用完立即释放，下次使用时重新获取。",
    )
    cure = Text("Write 1e9, or 1e8 where memory is short", "写 1e9；显存紧张时写 1e8")
