"""ds-scheduler-lr-against-optimizer-lr."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Severity, Text
from gonogo.hazards.config._written import spot
from gonogo.hazards.hazard import Hazard


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

    page_zh = """调度器的 warmup_max_lr 与优化器的 lr 不同。

    ## 现象
    运行以 warmup_max_lr 训练；优化器的 lr 从未使用。

    ## 原因
    WarmupLR 与 WarmupDecayLR 在每一步自行设定学习率，从 warmup_min_lr 到 warmup_max_lr。

    ## 解决办法
    两处写相同的数值；在 transformers 下两处都写 "auto"。

    ## 何时安全
    两者相同时。

    ## 来源
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/lr_schedules.py：`_update_optimizer`
    - https://www.deepspeed.ai/docs/config-json/：调度器
    """

    name = "ds-scheduler-lr-against-optimizer-lr"
    title = Text(en="The scheduler's learning rate replaces the optimizer's", zh="调度器的学习率会取代优化器的学习率")
    sources = (
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/lr_schedules.py",
        "https://www.deepspeed.ai/docs/config-json/",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
        """Both numbers as written, and not the same."""
        if config.raw("scheduler", "type").value not in ("WarmupLR", "WarmupDecayLR"):
            return
        highest = config.raw("scheduler", "params", "warmup_max_lr").number
        rate = config.raw("optimizer", "params", "lr").number
        if highest is None or rate is None or highest == rate:
            return
        yield self.finding(
            Text(
                en="The scheduler's warmup_max_lr is {highest:g} and the optimizer's lr {rate:g}: the run trains "
                "with "
                "{highest:g}.",
                zh="调度器的 warmup_max_lr 为 {highest:g}，优化器的 lr 为 {rate:g}：运行将以 {highest:g} 训练。",
            ).format(highest=highest, rate=rate),
            severity=Severity.WARNING,
            cure=(Text("Write the learning rate that is meant in both", "两处都写成想要的学习率"),),
            spans=(spot(config, "optimizer", "params", "lr"), spot(config, "scheduler", "params", "warmup_max_lr")),
        )
