"""ds-allgather-bucket-size-odd."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Text
from gonogo.hazards.config._written import ZERO, spot
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.hazard import Hazard


class DsAllgatherBucketSizeOdd(Hazard):
    """ZeRO-1 or 2 is given an odd allgather_bucket_size.

    ## What happens
    "AssertionError: allgather_bucket_size must be a multiple of nccl_start_alignment_factor, 2".

    ## Why
    Two 16-bit elements make the four bytes that NCCL's send buffers begin at.

    ## Cure
    Write an even number.

    ## When it is safe
    At stage 3 the key is not used.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py: the assertion
    - https://www.deepspeed.ai/docs/config-json/: allgather_bucket_size
    """

    page_zh = """ZeRO-1、2 的 allgather_bucket_size 是奇数。

    ## 现象
    “AssertionError: allgather_bucket_size must be a multiple of nccl_start_alignment_factor, 2”。

    ## 原因
    NCCL 的发送缓冲区按四字节对齐，即两个 16 位元素。

    ## 解决办法
    写偶数。

    ## 何时安全
    stage 3 不使用该键。

    ## 来源
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py：该断言
    - https://www.deepspeed.ai/docs/config-json/：allgather_bucket_size
    """

    name = "ds-allgather-bucket-size-odd"
    title = Text(en="allgather_bucket_size is an odd number", zh="allgather_bucket_size 是奇数")
    sources = (
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py",
        "https://www.deepspeed.ai/docs/config-json/",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
        """An odd size at stage 1 or 2."""
        size = config.raw(ZERO, "allgather_bucket_size").number
        if config.zero_stage not in (1, 2) or size is None or size % 2 != 1:
            return
        even = int(size) + 1
        yield self.finding(
            Text(
                en="allgather_bucket_size is {size:,}, and ZeRO-{stage} takes even numbers only.",
                zh="allgather_bucket_size 为 {size:,}，而 ZeRO-{stage} 只接受偶数。",
            ).format(size=int(size), stage=config.zero_stage),
            cure=(Text("Write {even}", "写 {even}").format(even=even),),
            spans=(spot(config, ZERO, "allgather_bucket_size"),),
            fixes=fix_of(
                Text("make it even", "改为偶数"),
                lambda: config.replacing(ZERO, "allgather_bucket_size", value=even),
            ),
        )
