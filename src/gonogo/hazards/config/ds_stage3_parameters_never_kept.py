"""ds-stage3-parameters-never-kept."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Severity, Text
from gonogo.hazards.config._written import ZERO, spot
from gonogo.hazards.hazard import Hazard


class DsStage3ParametersNeverKept(Hazard):
    """stage3_max_live_parameters or stage3_max_reuse_distance is 0.

    ## What happens
    Training is slower: each layer's weights are gathered once for the forward and again for the backward pass, also
    where they lie next to each other.

    ## Why
    The two limits let ZeRO-3 keep a parameter that is soon used again; 0 releases it at once, and turns prefetching
    off.

    ## Cure
    Leave both at 1e9; lower them to 1e8 where memory is short.

    ## When it is safe
    Where every megabyte counts more than speed.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/2869: what the two limits do
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: max_live_parameters,
      max_reuse_distance
    """

    page_zh = """stage3_max_live_parameters 或 stage3_max_reuse_distance 为 0。

    ## 现象
    训练变慢：每层权重在前向与反向中各获取一次，即使两次使用相邻。

    ## 原因
    这两个上限允许 ZeRO-3 保留即将再次使用的参数；0 表示立即释放，并且不做预取。

    ## 解决办法
    两者保持 1e9；显存紧张时降到 1e8。

    ## 何时安全
    显存比速度更重要时。

    ## 来源
    - https://github.com/deepspeedai/DeepSpeed/issues/2869：这两个上限的作用
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py：max_live_parameters、
      max_reuse_distance
    """

    name = "ds-stage3-parameters-never-kept"
    title = Text(en="ZeRO-3 fetches every parameter anew at each use", zh="ZeRO-3 每次使用参数都要重新获取")
    sources = (
        "https://github.com/deepspeedai/DeepSpeed/issues/2869",
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
        """Either limit at 0, at stage 3."""
        if config.zero_stage != 3:
            return
        for key in ("stage3_max_live_parameters", "stage3_max_reuse_distance"):
            if config.raw(ZERO, key).number != 0:
                continue
            yield self.finding(
                Text(
                    en="{key} is 0: parameters are released right after each use and gathered again for the next.",
                    zh="{key} 为 0：参数每次用完立即释放，下次使用时重新获取。",
                ).format(key=key),
                severity=Severity.NOTE,
                cure=(Text("Write 1e9, or 1e8 where memory is short", "写 1e9；显存紧张时写 1e8"),),
                spans=(spot(config, ZERO, key),),
            )
