from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, number
from gonogo.hazards.facts.deepspeed_settings import ZERO
from gonogo.hazards.rule import Certainty, Severity, Text


class DsStage3PersistenceThresholdHuge(ConfigHazard):
    """The threshold is larger than the model's weight matrices.
    ## What happens
    ZeRO-3 saves hardly any memory: the weights lie whole on every GPU.
    ## Why
    Parameters of fewer elements than the threshold are never partitioned. A 4096 x 4096 matrix has 16.8 million.
    ## Example
    ```json
    "stage3_param_persistence_threshold": 1e9    // wrong: nothing is partitioned
    "stage3_param_persistence_threshold": 1e5    // right
    ```
    ## Cure
    1e5 (the default) to 1e6; "auto" under transformers takes 10 x hidden_size.
    ## When it is safe
    Where the model fits whole, and stage 3 is used for its offload only; a stage3_model_persistence_threshold
    limits it.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/pull/5073: the default of 1e5
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py:
      param_persistence_threshold
    """

    name = "ds-stage3-persistence-threshold-huge"
    title = Text(
        "stage3_param_persistence_threshold keeps the weights whole on every GPU",
        "stage3_param_persistence_threshold 使每块 GPU 都保留完整权重",
    )

    keys = ("zero_optimization.stage3_param_persistence_threshold",)
    stages = (3,)
    wrong = number(lambda size: size >= 4096 * 4096)
    severity, certainty = Severity.WARNING, Certainty.LIKELY
    cause = Text(
        "{key} is {number:,.0f}: every parameter below that stays whole on each GPU, as a 4096 x 4096 matrix "
        "(16,777,216) would.",
        "{key} 为 {number:,.0f}：小于它的参数都完整留在每块 GPU 上，4096 x 4096 的矩阵（16,777,216）也不例外。",
    )
    cure = Text("Write 1e5, the default, or 1e6", "写默认值 1e5，或 1e6")
    change = Change(Text("take the default", "使用默认值"), to=100_000, safe=False)

    def around(self, at: Setting) -> Words | None:
        """No limit for the whole model."""
        return {} if at.config.raw(ZERO, "stage3_model_persistence_threshold").absent else None
