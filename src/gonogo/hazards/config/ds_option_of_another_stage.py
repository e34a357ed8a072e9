from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, given
from gonogo.hazards.rule import Severity, Text

_BELONGS = {
    "round_robin_gradients": (False, (1, 2), Text("stages 1 and 2", "stage 1 和 2")),
    "ignore_unused_parameters": (True, (2,), Text("stage 2", "stage 2")),
}
"""The default, and where another value has an effect."""


class DsOptionOfAnotherStage(ConfigHazard):
    """round_robin_gradients or ignore_unused_parameters is set at a stage that does not look at it.
    ## What happens
    Nothing: the option is ignored.
    ## Why
    round_robin_gradients belongs to stage 1 and 2, ignore_unused_parameters to stage 2.
    ## Example
    ```json
    "zero_optimization": {"stage": 3, "round_robin_gradients": true}    // wrong: no effect
    "zero_optimization": {"stage": 2, "round_robin_gradients": true}    // right
    ```
    ## Cure
    Remove the option, or take the stage that it belongs to.
    ## When it is safe
    Always harmless; a config for several stages may hold both.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: which stage each option
      belongs to
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: what each stage is given
    """

    name = "ds-option-of-another-stage"
    title = Text("An option of ZeRO has no effect at this stage", "ZeRO 的某个选项在当前 stage 不起作用")

    keys = tuple(f"zero_optimization.{key}" for key in _BELONGS)
    stages = (1, 2, 3)
    wrong = given
    severity = Severity.NOTE
    cause = Text(
        "{key} is {value} at stage {stage}, where it has no effect: it belongs to {belongs}.",
        "{key} 为 {value}，而 stage 为 {stage}；它只属于 {belongs}，此处不起作用。",
    )
    cure = Text("Remove {key}", "去掉 {key}")
    beside = ("zero_optimization.stage",)
    change = Change(Text("remove {key}", "去掉 {key}"))

    def around(self, at: Setting) -> Words | None:
        """The stages that it belongs to, where it is not the default and this is none of them."""
        default, stages, belongs = _BELONGS[at.keys[-1]]
        without_effect = at.field.truth is (not default) and at.config.zero_stage not in stages
        return {"belongs": belongs} if without_effect else None
