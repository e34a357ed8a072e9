"""zero3-partitioned-weight-used-outside-engine."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding import Finding, Text
from gonogo.hazard import Hazard
from gonogo.hazards.zero3._empty_uses import EMPTY_WORDS, Use, empty_uses
from gonogo.hazards.zero3._partitioned import ZERO3_WORDS


class PartitionedWeightUsedOutsideEngine(Hazard):
    """A teacher, reference model or encoder runs without a DeepSpeed engine, and its weights are empty.

    ## What happens
    Under ZeRO-3 the forward of a second model (teacher, DPO's reference model, reward model, text encoder, a vision
    tower loaded late) raises "RuntimeError: 'weight' must be 2-D" at its embedding, or another error of an empty
    weight.

    ## Why
    While ZeRO-3 is on, `from_pretrained` builds every model inside `deepspeed.zero.Init`, which leaves empty
    parameters. Only `deepspeed.initialize` gives a model the hooks that gather them around each layer. The trained
    model gets them; a second model that is called by itself does not.

    ## Cure
    Hand the second model to DeepSpeed too: `accelerator.prepare(teacher)` or `deepspeed.initialize(model=teacher,
    config=config_without_optimizer)[0]`, as TRL's `prepare_deepspeed` does. Where it fits on a GPU, load it whole
    instead: outside `zero.Init` (accelerate's `zero3_init_context_manager(enable=False)`), or before ZeRO-3 is set up.

    ## When it is safe
    ZeRO-2 and lower keep parameters whole.

    ## Sources
    - https://github.com/arcee-ai/DistillKit/issues/3: a teacher; deepspeed.initialize for it helped
    - https://github.com/huggingface/trl/pull/687: the reference model of DPO, and why
    - https://github.com/huggingface/diffusers/issues/10743: encoders loaded with zero.Init off
    - https://github.com/huggingface/transformers/issues/22705: a text encoder
    """

    page_zh = """教师模型、参考模型或编码器未经 DeepSpeed 引擎运行，其权重是空的。

    ## 现象
    ZeRO-3 下，第二个模型（教师、DPO 的参考模型、奖励模型、文本编码器、较晚加载的视觉塔）前向时在 embedding 处抛出
    “RuntimeError: 'weight' must be 2-D”，或其他空权重的错误。

    ## 原因
    启用 ZeRO-3 后，`from_pretrained` 会在 `deepspeed.zero.Init` 中构建每个模型，留下空参数。只有 `deepspeed.initialize`
    才会给模型装上在每层前后聚合参数的钩子。被训练的模型有这些钩子，单独调用的第二个模型没有。

    ## 解决办法
    把第二个模型也交给 DeepSpeed：`accelerator.prepare(teacher)` 或 `deepspeed.initialize(model=teacher, config=不含优化
    器的配置)[0]`，TRL 的 `prepare_deepspeed` 就是这样做的。若单卡放得下，则完整加载：在 `zero.Init` 之外（accelerate 的
    `zero3_init_context_manager(enable=False)`），或在启用 ZeRO-3 之前加载。

    ## 何时安全
    ZeRO-2 及以下参数保持完整。

    ## 来源
    - https://github.com/arcee-ai/DistillKit/issues/3：教师模型，对其调用 deepspeed.initialize 后解决
    - https://github.com/huggingface/trl/pull/687：DPO 的参考模型，以及原因
    - https://github.com/huggingface/diffusers/issues/10743：关闭 zero.Init 加载编码器
    - https://github.com/huggingface/transformers/issues/22705：文本编码器
    """

    name = "zero3-partitioned-weight-used-outside-engine"
    title = Text(
        en="A second model runs without a DeepSpeed engine, so its ZeRO-3 weights are empty",
        zh="第二个模型未经 DeepSpeed 引擎运行，其 ZeRO-3 权重是空的",
    )
    sources = (
        "https://github.com/arcee-ai/DistillKit/issues/3",
        "https://github.com/huggingface/trl/pull/687",
        "https://github.com/huggingface/diffusers/issues/10743",
        "https://github.com/huggingface/transformers/issues/22705",
    )
    log_words = (*ZERO3_WORDS, *EMPTY_WORDS)

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
        """An empty weight in a model that is not the trained one, or nothing that tells which it was."""
        for use in empty_uses(log):
            certainty = use.causes.get(Use.OUTSIDE_ENGINE)
            if certainty is None:
                continue
            yield self.log_finding(
                use.evidence,
                Text(
                    en="A model was built under zero.Init, so its parameters are empty, and is called without a "
                    "DeepSpeed engine that would gather them: a teacher, reference or reward model, an encoder, or "
                    "the bare model.",
                    zh="某个模型在 zero.Init 下构建，参数是空的，却在没有 DeepSpeed 引擎为其聚合参数的情况下被调用：教"
                    "师、参考或奖励模型、编码器，或未包装的模型。",
                ),
                cure=(
                    Text(
                        "Hand that model to DeepSpeed too: accelerator.prepare(model), or "
                        "deepspeed.initialize(model=..., config=...)",
                        "把该模型也交给 DeepSpeed：accelerator.prepare(model) 或 deepspeed.initialize(model=..., "
                        "config=...)",
                    ),
                    Text(
                        "Or load it whole, outside zero.Init: accelerate's zero3_init_context_manager(enable=False); "
                        "or use ZeRO-2",
                        "或在 zero.Init 之外完整加载：accelerate 的 zero3_init_context_manager(enable=False)；或使用 "
                        "ZeRO-2",
                    ),
                ),
                certainty=certainty,
                confirm=(
                    Text(
                        "The frames above the error call a model other than the trained one, or the run was started "
                        "with a distributed launcher",
                        "报错之上的调用帧调用的不是被训练的模型，或者训练是用分布式启动器启动的",
                    ),
                ),
            )
