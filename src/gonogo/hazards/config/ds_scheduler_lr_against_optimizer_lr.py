from gonogo.hazards.config._written import span_in
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Severity, Text


class DsSchedulerLrAgainstOptimizerLr(Hazard):
    """warmup_max_lr of the scheduler differs from lr of the optimizer.

    ## What happens
    The run trains with warmup_max_lr; the optimizer's lr is never used.

    ## Why
    WarmupLR and WarmupDecayLR set the learning rate of every step themselves, from warmup_min_lr to warmup_max_lr.

    ## Cure
    Write the same number in both, or "auto" in both under transformers.

    ## When it is safe
    Where both are the same.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/lr_schedules.py: `_update_optimizer`
    - https://www.deepspeed.ai/docs/config-json/: the schedulers
    """

    name = "ds-scheduler-lr-against-optimizer-lr"
    title = Text(en="The scheduler's learning rate replaces the optimizer's", zh="调度器的学习率会取代优化器的学习率")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Both numbers as written, and not the same."""
        if config.raw("scheduler", "type").value not in ("WarmupLR", "WarmupDecayLR"):
            return
        highest = config.raw("scheduler", "params", "warmup_max_lr").number
        rate = config.raw("optimizer", "params", "lr").number
        if highest is None or rate is None or highest == rate:
            return
        yield self.finding(
            Text(
                en="The scheduler's warmup_max_lr is {highest:g} and the optimizer's lr {rate:g}: the run trains with "
                "{highest:g}.",
                zh="调度器的 warmup_max_lr 为 {highest:g}，优化器的 lr 为 {rate:g}：运行将以 {highest:g} 训练。",
            ).format(highest=highest, rate=rate),
            severity=Severity.WARNING,
            cure=(Text("Write the learning rate that is meant in both", "两处都写成想要的学习率"),),
            spans=(
                span_in(config, "optimizer", "params", "lr"),
                span_in(config, "scheduler", "params", "warmup_max_lr"),
            ),
        )
