"""trainer-accumulated-loss-wrong-scale."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.how_it_trains import with_trainer
from gonogo.hazards.facts.installed import from_file, span_of, told, version_fix
from gonogo.hazards.hazard import Hazard


class TrainerAccumulatedLossWrongScale(Hazard):
    """The Trainer of transformers 4.46 and 4.47 scales the loss of accumulated micro-batches wrongly.

    ## What happens
    The reported loss is several times (up to the number of accumulated micro-batches) what it is without accumulation
    or with another release; by release, model and launcher the gradients are off too. Runs can't be compared, and
    clipping and learning rate act otherwise than meant.

    ## Why
    4.46 began to divide the loss by the number of tokens of all accumulated micro-batches. Until 4.48 parts of it
    were missing: models that don't take that number, DeepSpeed's own division, the reported value.

    ## Cure
    Install transformers 4.50 or newer, or 4.45.2.

    ## When it is safe
    With gradient_accumulation_steps of 1.

    ## Sources
    - https://github.com/huggingface/transformers/issues/34263: the loss is 5 to 10 times higher
    - https://github.com/huggingface/transformers/issues/34694: the same under DeepSpeed, 4.46.2
    - https://github.com/huggingface/transformers/issues/35556: 4.47.1: summed instead of averaged
    - https://github.com/huggingface/transformers/pull/35438: a fix: the number that is passed on
    """

    page_zh = """transformers 4.46 与 4.47 的 Trainer 对梯度累积的 loss 缩放有误。

    ## 现象
    报告的 loss 是不累积或其他版本的数倍（可达累积步数倍）；随版本、模型与启动方式不同，梯度也会有偏差。不同训练之间
    无法比较，梯度裁剪与学习率的作用也与预期不符。

    ## 原因
    4.46 开始用所有累积 micro-batch 的 token 数去除 loss。直到 4.48，这一改动都不完整：不接受该数的模型、DeepSpeed 自
    己的除法、报告的数值等。

    ## 解决办法
    安装 transformers 4.50 及以上，或 4.45.2。

    ## 何时安全
    gradient_accumulation_steps 为 1 时。

    ## 来源
    - https://github.com/huggingface/transformers/issues/34263：loss 高出 5 至 10 倍
    - https://github.com/huggingface/transformers/issues/34694：DeepSpeed 下的同一问题，4.46.2
    - https://github.com/huggingface/transformers/issues/35556：4.47.1：求和而不是求平均
    - https://github.com/huggingface/transformers/pull/35438：修复：传递的数目
    """

    name = "trainer-accumulated-loss-wrong-scale"
    title = Text(
        "This Trainer scales the loss of accumulated micro-batches wrongly",
        "该版本 Trainer 对累积 micro-batch 的 loss 缩放有误",
    )
    sources = (
        "https://github.com/huggingface/transformers/issues/34263",
        "https://github.com/huggingface/transformers/issues/34694",
        "https://github.com/huggingface/transformers/issues/35556",
        "https://github.com/huggingface/transformers/pull/35438",
    )

    def in_environment(self, environment: Environment, run: Run) -> Iterator[Finding]:
        """Those releases in a file, the Trainer, and more than one accumulated micro-batch."""
        if not environment.within("transformers", ">=4.46,<4.48") or not from_file(environment, "transformers"):
            return
        given = run.arguments.get("gradient_accumulation_steps")
        steps = given.number
        if steps is None or steps <= 1 or not with_trainer(run):
            return
        yield self.finding(
            Text(
                "{transformers} scales the loss of {steps} accumulated micro-batches wrongly: what it reports, or the "
                "gradients, are off by a factor of up to {steps}.",
                "{transformers} 对 {steps} 个累积 micro-batch 的 loss 缩放有误：报告值或梯度最多相差 {steps} 倍。",
            ).format(transformers=told(environment, "transformers"), steps=int(steps)),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            cure=(
                Text('pip install "transformers>=4.50,<5"', '执行 pip install "transformers>=4.50,<5"'),
                Text("Or 4.45.2, from before the change", "或使用改动之前的 4.45.2"),
            ),
            spans=(span_of(environment, "transformers"), given.span()),
            fixes=version_fix(environment, "transformers", ">=4.50,<5"),
        )
