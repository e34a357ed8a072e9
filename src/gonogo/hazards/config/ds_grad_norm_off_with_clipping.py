from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, false
from gonogo.hazards.facts.deepspeed_settings import key_spot
from gonogo.hazards.rule import DeepSpeedConfig, Pattern, Refusal, Span, Text


class DsGradNormOffWithClipping(ConfigHazard):
    """compute_grad_norm is false, and clipping, offload or the stage needs the norm.
    ## What happens
    "ValueError: zero_optimization.compute_grad_norm=false requires gradient_clipping=0", or "… is supported only
    with ZeRO Stage 1 or 2".
    ## Why
    Clipping divides by the norm. The Trainer clips at 1.0 unless told otherwise.
    ## Example
    ```json
    "gradient_clipping": 1.0, "zero_optimization": {"stage": 2, "compute_grad_norm": false}   // wrong
    "gradient_clipping": 1.0, "zero_optimization": {"stage": 2}                               // right
    ```
    ## Cure
    Remove the key, or set gradient_clipping to 0.
    ## When it is safe
    At stage 1 and 2 without clipping and without offload.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py: clipping and
      offload
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: the stages
    """

    name = "ds-grad-norm-off-with-clipping"
    title = Text("The gradient norm is switched off, and something needs it", "关闭了梯度范数，而有设置需要它")
    refusal = Refusal(Pattern(r"compute_grad_norm=false requires gradient_clipping=0"))

    keys = ("zero_optimization.compute_grad_norm",)
    wrong = false
    cause = Text(
        "{key} is false, which DeepSpeed refuses together with {beside}.",
        "{key} 为 false，DeepSpeed 不允许它与 {beside} 同时使用。",
    )
    cure = (Text("Remove {key}", "去掉 {key}"),)
    change = Change(Text("compute the norm", "计算该范数"))

    def around(self, at: Setting) -> Words | None:
        """What needs the norm."""
        needs = _needs_it(at.config)
        return {"beside": needs} if needs else None

    def spans_beside(self, at: Setting) -> tuple[Span | None, ...]:
        """Where that stands."""
        return (key_spot(at.config, *_needs_it(at.config).split(".")),)


def _needs_it(config: DeepSpeedConfig) -> str:
    """The first setting beside which DeepSpeed computes the norm; empty where none does."""
    if config.zero_stage in (0, 3):
        return "zero_optimization.stage"
    if config.get("gradient_clipping").number:
        return "gradient_clipping"
    return "zero_optimization.offload_optimizer" if config.offload("optimizer").get("none") != "none" else ""
