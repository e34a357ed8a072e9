"""ds-config-fp16-and-bf16."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.deepspeed_config import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Text
from gonogo.hazard import Hazard
from gonogo.hazards.config._of_run import fix_of
from gonogo.hazards.config._written import spot


class DsConfigFp16AndBf16(Hazard):
    """Both sections say `"enabled": true`.

    ## What happens
    "AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled", on every rank.

    ## Why
    A model has one 16-bit type.

    ## Cure
    Keep bf16 on an Ampere or newer GPU, fp16 on older ones; or write "auto" in both.

    ## When it is safe
    "auto" in both, which the training arguments decide.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py: the assertion
    - https://github.com/Snowflake-AI-Research/Arctic-Platform/pull/78: both switched on by defaults
    """

    page_zh = """两段都写了 `"enabled": true`。

    ## 现象
    每个 rank 都报 “AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled”。

    ## 原因
    模型只能有一种 16 位类型。

    ## 解决办法
    Ampere 及更新的 GPU 保留 bf16，更旧的用 fp16；或两处都写 "auto"。

    ## 何时安全
    两处都写 "auto"，由训练参数决定。

    ## 来源
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py：该断言
    - https://github.com/Snowflake-AI-Research/Arctic-Platform/pull/78：默认值同时开启两者
    """

    name = "ds-config-fp16-and-bf16"
    title = Text(en="fp16 and bf16 are both on in the DeepSpeed config", zh="DeepSpeed 配置同时开启了 fp16 与 bf16")
    sources = (
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py",
        "https://github.com/Snowflake-AI-Research/Arctic-Platform/pull/78",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
        """Both surely on as written."""
        section = "bf16" if not config.raw("bf16").absent else "bfloat16"
        both = [config.raw(section, "enabled"), config.raw("fp16", "enabled")]
        if not all(field.known and field.value is True for field in both):
            return
        yield self.finding(
            Text(
                en="fp16 and {bf16} are both enabled: DeepSpeed stops with an assertion.",
                zh="fp16 与 {bf16} 同时开启：DeepSpeed 会因断言失败而停止。",
            ).format(bf16=section),
            cure=(
                Text(
                    'Set "enabled" of fp16 to false on an Ampere or newer GPU',
                    "在 Ampere 及更新的 GPU 上，把 fp16 的 “enabled” 设为 false",
                ),
                Text(
                    'Or write "auto" in both where transformers fills it in', "或两处都写 “auto”，由 transformers 填充"
                ),
            ),
            spans=(spot(config, "fp16", "enabled"), spot(config, section, "enabled")),
            fixes=fix_of(
                Text("train in bf16", "用 bf16 训练"),
                lambda: config.replacing("fp16", "enabled", value=False),
                safe=False,
            ),
        )
