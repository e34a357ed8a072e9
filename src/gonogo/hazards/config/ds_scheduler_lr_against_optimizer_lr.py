from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, given
from gonogo.hazards.rule import Severity, Text


class DsSchedulerLrAgainstOptimizerLr(ConfigHazard):
    """warmup_max_lr of the scheduler differs from lr of the optimizer.
    ## What happens
    The run trains with warmup_max_lr; the optimizer's lr is never used.
    ## Why
    WarmupLR and WarmupDecayLR set the learning rate of every step themselves, from warmup_min_lr to warmup_max_lr.
    ## Example
    ```json
    // "optimizer": {"type": "AdamW", "params": {"lr": 2e-5}}
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 3e-4}}    // wrong: trains with 3e-4
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 2e-5}}    // right
    ```
    ## Cure
    Write the same number in both, or "auto" in both under transformers.
    ## When it is safe
    Where both are the same.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/lr_schedules.py: `_update_optimizer`
    - https://www.deepspeed.ai/docs/config-json/: the schedulers
    """

    name = "ds-scheduler-lr-against-optimizer-lr"
    title = Text("The scheduler's learning rate replaces the optimizer's", "调度器的学习率会取代优化器的学习率")

    keys = ("optimizer.params.lr",)
    wrong = given
    severity = Severity.WARNING
    cause = Text(
        "The scheduler's warmup_max_lr is {highest:g} and the optimizer's lr {number:g}: the run trains with "
        "{highest:g}.",
        "调度器的 warmup_max_lr 为 {highest:g}，优化器的 lr 为 {number:g}：运行将以 {highest:g} 训练。",
    )
    cure = Text(
        "Write the rate that is meant in both: {number:g} or {highest:g}",
        "两处都写成想要的学习率：{number:g} 或 {highest:g}",
    )
    beside = ("scheduler.params.warmup_max_lr",)

    def around(self, at: Setting) -> Words | None:
        """The rate that the scheduler rises to, where it is another."""
        if at.config.raw("scheduler", "type").value not in ("WarmupLR", "WarmupDecayLR"):
            return None
        highest = at.config.raw("scheduler", "params", "warmup_max_lr").number
        return {"highest": highest} if None not in (highest, at.field.number) and highest != at.field.number else None
