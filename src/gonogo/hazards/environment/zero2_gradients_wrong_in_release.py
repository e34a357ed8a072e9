"""zero2-gradients-wrong-in-release."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment import Environment
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazard import Hazard
from gonogo.hazards.environment._told import span_of, told, version_fix
from gonogo.hazards.zero3._in_files import stage_span


class Zero2GradientsWrongInRelease(Hazard):
    """DeepSpeed 0.17.6 to 0.18.2 compute wrong gradients under ZeRO-2.

    ## What happens
    Nothing is raised. grad_norm is a third of what it was with an older DeepSpeed, and the model learns worse than
    under ZeRO-1 or ZeRO-3 with all else the same.

    ## Why
    A change of the gradients' reduction in 0.17.6 lost a part of them under stage 2. 0.18.3 set it right.

    ## Cure
    Install DeepSpeed 0.18.3 or newer, or 0.17.5. A run that was made with these releases is worth repeating.

    ## When it is safe
    ZeRO-1 and ZeRO-3 are reported to be right.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/7718: the report, with losses and gradient norms side by side
    - https://github.com/huggingface/trl/issues/4540: worse results under stage 2; 0.18.3 settles it
    """

    page_zh = """DeepSpeed 0.17.6 至 0.18.2 在 ZeRO-2 下计算出错误的梯度。

    ## 现象
    没有任何报错。grad_norm 只有旧版 DeepSpeed 的三分之一左右，其余设置相同时，模型的效果比 ZeRO-1 或 ZeRO-3 差。

    ## 原因
    0.17.6 对梯度归约的改动在 stage 2 下丢失了一部分梯度，0.18.3 已修正。

    ## 解决办法
    安装 DeepSpeed 0.18.3 及以上，或 0.17.5。用这些版本训练的结果值得重新训练。

    ## 何时安全
    据报告 ZeRO-1 与 ZeRO-3 正常。

    ## 来源
    - https://github.com/deepspeedai/DeepSpeed/issues/7718：报告，含 loss 与梯度范数的对比
    - https://github.com/huggingface/trl/issues/4540：stage 2 结果更差；0.18.3 解决
    """

    name = "zero2-gradients-wrong-in-release"
    title = Text("This DeepSpeed computes wrong gradients under ZeRO-2", "此版本 DeepSpeed 在 ZeRO-2 下梯度有误")
    sources = (
        "https://github.com/deepspeedai/DeepSpeed/issues/7718",
        "https://github.com/huggingface/trl/issues/4540",
    )

    def in_environment(self, environment: Environment, run: Run) -> Iterator[Finding]:
        """Stage 2 with one of those releases."""
        if run.zero_stage != 2 or not environment.within("deepspeed", ">=0.17.6,<0.18.3"):
            return
        yield self.finding(
            Text(
                "{deepspeed} computes wrong gradients under ZeRO-2, and raises nothing; 0.18.3 is right again.",
                "{deepspeed} 在 ZeRO-2 下计算出错误的梯度且没有任何报错；0.18.3 已修正。",
            ).format(deepspeed=told(environment, "deepspeed")),
            certainty=Certainty.LIKELY,
            cure=(
                Text('pip install "deepspeed>=0.18.3"', '执行 pip install "deepspeed>=0.18.3"'),
                Text("Or ZeRO-1 or ZeRO-3", "或使用 ZeRO-1 或 ZeRO-3"),
            ),
            spans=(
                span_of(environment, "deepspeed"),
                stage_span(run, Text("stage 2", "stage 2：梯度被切分")),
            ),
            fixes=version_fix(environment, "deepspeed", ">=0.18.3"),
            confirm=(Text("grad_norm differs from that of deepspeed 0.17.5", "grad_norm 与 deepspeed 0.17.5 的不同"),),
        )
