"""ds-zero-stage-invalid."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.deepspeed_config import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazard import Hazard
from gonogo.hazards.config._of_run import fix_of, in_own_loop, shown
from gonogo.hazards.config._written import ZERO, spot


class DsZeroStageInvalid(Hazard):
    """zero_optimization.stage is none of 0, 1, 2, 3.

    ## What happens
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig, stage, Input should
    be 0, 1, 2, 3 or 3". A stage in quotes is worse: transformers compares "3" with 3, finds them unequal, and loads
    the whole model on every rank.

    ## Why
    DeepSpeed has four stages. Its reader turns "3" into 3; transformers' `is_zero3()` does not.

    ## Cure
    Write 0, 1, 2 or 3 without quotes.

    ## When it is safe
    "auto" where accelerate fills it in.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: `ZeroStageEnum`
    - https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/deepspeed.py: `is_zero3` compares
      with the number 3
    - https://github.com/deepspeedai/DeepSpeedExamples/issues/287: a validation error of DeepSpeedZeroConfig
    """

    page_zh = """zero_optimization.stage 不是 0、1、2、3 之一。

    ## 现象
    “pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig, stage, Input should
    be 0, 1, 2, 3 or 3”。带引号的 stage 更糟：transformers 拿 "3" 与 3 比较，认为不等，于是在每个 rank 上加载完整模
    型。

    ## 原因
    DeepSpeed 只有四个 stage。它的读取代码会把 "3" 转成 3，而 transformers 的 `is_zero3()` 不会。

    ## 解决办法
    写成不带引号的 0、1、2 或 3。

    ## 何时安全
    由 accelerate 填充的 "auto"。

    ## 来源
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py：`ZeroStageEnum`
    - https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/deepspeed.py：`is_zero3` 与数字 3 比
      较
    - https://github.com/deepspeedai/DeepSpeedExamples/issues/287：DeepSpeedZeroConfig 的校验错误
    """

    name = "ds-zero-stage-invalid"
    title = Text(en="There is no such ZeRO stage", zh="没有这个 ZeRO stage")
    sources = (
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py",
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/deepspeed.py",
        "https://github.com/deepspeedai/DeepSpeedExamples/issues/287",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
        """A stage that DeepSpeed refuses, or one that transformers does not recognise."""
        field = config.raw(ZERO, "stage")
        valid = field.value in (0, 1, 2, 3) and not isinstance(field.value, str)
        if not field.known or field.value == "auto" or valid:
            return
        written = str(field.value).strip()
        if isinstance(field.value, str) and written in ("0", "1", "2", "3"):
            if in_own_loop(run):
                return
            yield self.finding(
                Text(
                    en='"stage" is the string {value}. DeepSpeed takes it for the number, transformers does not: for '
                    "it "
                    "the run has no ZeRO-{stage}.",
                    zh="“stage” 是字符串 {value}。DeepSpeed 会当作数字，transformers 不会：在它看来这次运行没有使用 "
                    "ZeRO-{stage}。",
                ).format(value=shown(field.value), stage=written),
                certainty=Certainty.LIKELY,
                severity=Severity.ERROR if written == "3" else Severity.WARNING,
                cure=(Text("Write {stage} without quotes", "写成不带引号的 {stage}").format(stage=written),),
                spans=(spot(config, ZERO, "stage"),),
                fixes=fix_of(
                    Text("write the number", "改写为数字"),
                    lambda: config.replacing(ZERO, "stage", value=int(written)),
                ),
            )
            return
        yield self.finding(
            Text(
                en="ZeRO has the stages 0, 1, 2 and 3, and the config asks for {value}: DeepSpeed refuses it.",
                zh="ZeRO 只有 stage 0、1、2、3，而配置写的是 {value}：DeepSpeed 会拒绝。",
            ).format(value=shown(field.value)),
            cure=(
                Text(
                    "Write 1 (optimizer states divided), 2 (gradients as well) or 3 (parameters as well)",
                    "写 1（切分优化器状态）、2（再切分梯度）或 3（再切分参数）",
                ),
            ),
            spans=(spot(config, ZERO, "stage"),),
        )
