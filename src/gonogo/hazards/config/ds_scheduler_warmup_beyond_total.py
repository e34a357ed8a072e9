from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, number
from gonogo.hazards.rule import Severity, Text


class DsSchedulerWarmupBeyondTotal(ConfigHazard):
    """warmup_num_steps is larger than total_num_steps.
    ## What happens
    DeepSpeed logs "total_num_steps 500 is less than warmup_num_steps 1000", and the learning rate never reaches its
    maximum.
    ## Why
    The decay is to begin after the warm-up, and the run is over before.
    ## Example
    ```json
    // "total_num_steps": 500
    "warmup_num_steps": 1000    // wrong
    "warmup_num_steps": 15      // right
    ```
    ## Cure
    Write a warm-up of a few percent of the steps, or "auto" for both.
    ## When it is safe
    Where the warm-up is shorter.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/lr_schedules.py: the warning
    - https://www.deepspeed.ai/docs/config-json/: WarmupDecayLR
    """

    name = "ds-scheduler-warmup-beyond-total"
    title = Text("The warm-up is longer than the whole schedule", "预热步数超过了总步数")

    keys = ("scheduler.params.warmup_num_steps",)
    wrong = number(lambda steps: steps > 0)
    fills_in_auto = True
    severity = Severity.WARNING
    cause = Text(
        "The warm-up takes {number:,.0f} of {total:,.0f} steps: the learning rate never reaches its maximum.",
        "预热需要 {number:,.0f} 步，而总共只有 {total:,.0f} 步：学习率永远达不到最大值。",
    )
    cure = Text("Write a warm-up of some {few:.0f} steps", "预热取 {few:.0f} 步左右")
    beside = ("scheduler.params.total_num_steps",)

    def around(self, at: Setting) -> Words | None:
        """All the steps, where they are fewer."""
        total = at.config.get("scheduler", "params", "total_num_steps").number
        if total is None or (at.field.number or 0) <= total:
            return None
        return {"total": total, "few": max(1, total * 0.03)}
