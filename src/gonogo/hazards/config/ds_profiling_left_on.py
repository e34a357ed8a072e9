"""ds-profiling-left-on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Severity, Text
from gonogo.hazards.config._written import is_on, spot
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.hazard import Hazard


class DsProfilingLeftOn(Hazard):
    """The config switches on measurements that cost time at every step.

    ## What happens
    The run is slower than it could be, and its log is full of timings.

    ## Why
    wall_clock_breakdown waits for the GPU several times a step; flops_profiler switches it on as well, also after
    the step that it profiles; comms_logger records every collective; memory_breakdown and dump_state print.

    ## Cure
    Switch it off for the real run.

    ## When it is safe
    While you measure.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/2903: the flops profiler times all steps
    - https://www.deepspeed.ai/docs/config-json/: the settings
    """

    page_zh = """配置开启了每一步都要花时间的测量。

    ## 现象
    运行比应有的慢，日志里满是计时信息。

    ## 原因
    wall_clock_breakdown 每步多次等待 GPU；flops_profiler 也会开启它，且在被分析的那一步之后仍然有效；comms_logger
    记录每次集合通信；memory_breakdown、dump_state 会打印信息。

    ## 解决办法
    正式运行时关闭。

    ## 何时安全
    正在做性能测量时。

    ## 来源
    - https://github.com/deepspeedai/DeepSpeed/issues/2903：flops profiler 会对所有步计时
    - https://www.deepspeed.ai/docs/config-json/：各项设置
    """

    name = "ds-profiling-left-on"
    title = Text(en="A profiler of DeepSpeed is left on", zh="DeepSpeed 的性能分析仍然开着")
    sources = (
        "https://github.com/deepspeedai/DeepSpeed/issues/2903",
        "https://www.deepspeed.ai/docs/config-json/",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
        """What is on of them, as one remark."""
        switches = ("wall_clock_breakdown", "memory_breakdown", "dump_state")
        keys: list[tuple[str, ...]] = [(name,) for name in switches if config.raw(name).truth]
        keys += [(name, "enabled") for name in ("flops_profiler", "comms_logger") if is_on(config, name)]
        if not keys:
            return
        yield self.finding(
            Text(
                en="{on} measure at every step, and cost time.",
                zh="{on} 在每一步都做测量，会拖慢训练。",
            ).format(on=", ".join(one[0] for one in keys)),
            severity=Severity.NOTE,
            cure=(Text("Switch it off for the real run", "正式运行时关闭"),),
            spans=tuple(spot(config, *one) for one in keys),
            fixes=fix_of(
                Text("switch it off", "关闭"),
                *(partial(config.replacing, *one, value=False) for one in keys),
                safe=False,
            ),
        )
