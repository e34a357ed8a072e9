from gonogo.hazards.config._written import span_in
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Severity, Text


class DsSchedulerWarmupBeyondTotal(Hazard):
    """warmup_num_steps is larger than total_num_steps.

    ## What happens
    DeepSpeed logs "total_num_steps 500 is less than warmup_num_steps 1000", and the learning rate never reaches its
    maximum.

    ## Why
    The decay is to begin after the warm-up, and the run is over before.

    ## Cure
    Write a warm-up of a few percent of the steps, or "auto" for both.

    ## When it is safe
    Where the warm-up is shorter.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/lr_schedules.py: the warning
    - https://www.deepspeed.ai/docs/config-json/: WarmupDecayLR
    """

    name = "ds-scheduler-warmup-beyond-total"
    title = Text(en="The warm-up is longer than the whole schedule", zh="预热步数超过了总步数")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Both numbers as they will be, the first larger."""
        warmup = config.get("scheduler", "params", "warmup_num_steps")
        total = config.get("scheduler", "params", "total_num_steps")
        if warmup.number is None or total.number is None or warmup.number <= total.number:
            return
        yield self.finding(
            Text(
                en="The warm-up takes {warmup:,} of {total:,} steps: the learning rate never reaches its maximum.",
                zh="预热需要 {warmup:,} 步，而总共只有 {total:,} 步：学习率永远达不到最大值。",
            ).format(warmup=int(warmup.number), total=int(total.number)),
            severity=Severity.WARNING,
            cure=(
                Text("Write a warm-up of some {few} steps", "预热取 {few} 步左右").format(
                    few=max(1, int(total.number * 0.03))
                ),
            ),
            spans=(
                span_in(config, "scheduler", "params", "warmup_num_steps"),
                span_in(config, "scheduler", "params", "total_num_steps"),
            ),
        )
