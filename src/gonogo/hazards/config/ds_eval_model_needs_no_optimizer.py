"""ds-eval-model-needs-no-optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.log.cut import cut_in
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.said import said, told
from gonogo.evidence.patterns import Pattern
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Script
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.config._without_optimizer import prepared_without_optimizer
from gonogo.hazards.hazard import Hazard

_STAGE = Pattern(r"zero stage ([0-3]|\{\}) requires an optimizer")
_WORDS = ("zero stage 1 requires an optimizer", "zero stage 2 requires an optimizer", "requires an optimizer")
_INFERENCE = "ZeRO inference only makes sense with ZeRO Stage 3"


class DsEvalModelNeedsNoOptimizer(Hazard):
    """A model that is only evaluated is given to DeepSpeed under ZeRO-1 or ZeRO-2.

    ## What happens
    "AssertionError: zero stage 2 requires an optimizer", in `deepspeed.initialize` for a reference, reward or teacher
    model (DPO, PPO, GRPO, distillation), or in a script that only evaluates.

    ## Why
    ZeRO-1 and ZeRO-2 divide optimizer states and gradients: without an optimizer they have nothing to divide, and
    refuse. ZeRO-3 divides the parameters too and takes a model without an optimizer.

    ## Cure
    Prepare that model with `"zero_optimization": {"stage": 0}` (or 3), or do not hand it to DeepSpeed at all: move it
    to the rank's GPU and put it into eval mode. A model that is to be trained must be prepared together with its
    optimizer, in one call.

    ## When it is safe
    Stage 0 and stage 3.

    ## Sources
    - https://github.com/huggingface/trl/pull/825: trl prepares its reference model with stage 0
    - https://github.com/PKU-Alignment/safe-rlhf/pull/65: only stages 0 and 3 for evaluation
    - https://github.com/hiyouga/LlamaFactory/issues/1243: DPO under ZeRO-2
    """

    page_zh = """只用于评估的模型在 ZeRO-1 或 ZeRO-2 下交给了 DeepSpeed。

    ## 现象
    在为参考、奖励或教师模型（DPO、PPO、GRPO、蒸馏）调用 `deepspeed.initialize` 时，或在只做评估的脚本中出现
    “AssertionError: zero stage 2 requires an optimizer”。

    ## 原因
    ZeRO-1 与 ZeRO-2 切分的是优化器状态和梯度：没有优化器就没有可切分的内容，因此拒绝。ZeRO-3 还切分参数，可以接受没有
    优化器的模型。

    ## 解决办法
    用 `"zero_optimization": {"stage": 0}`（或 3）准备该模型，或者根本不交给 DeepSpeed：移到本 rank 的 GPU 并设为
    eval 模式。需要训练的模型必须与它的优化器在同一次调用中准备。

    ## 何时安全
    stage 0 与 stage 3。

    ## 来源
    - https://github.com/huggingface/trl/pull/825：trl 用 stage 0 准备参考模型
    - https://github.com/PKU-Alignment/safe-rlhf/pull/65：评估只支持 stage 0 和 3
    - https://github.com/hiyouga/LlamaFactory/issues/1243：ZeRO-2 下的 DPO
    """

    name = "ds-eval-model-needs-no-optimizer"
    title = Text(
        en="A model without an optimizer is prepared under ZeRO-1 or ZeRO-2",
        zh="没有优化器的模型在 ZeRO-1 或 ZeRO-2 下初始化",
    )
    sources = (
        "https://github.com/huggingface/trl/pull/825",
        "https://github.com/PKU-Alignment/safe-rlhf/pull/65",
        "https://github.com/hiyouga/LlamaFactory/issues/1243",
    )

    def in_script(self, script: Script, run: Run) -> Iterator[Finding]:
        """A model that is prepared alone, or evaluated by a Trainer that never trains."""
        yield from prepared_without_optimizer(self, script, run)

    log_words = ("requires an optimizer", _INFERENCE, "isinstance(optimizer, DummyOptim)")

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
        """DeepSpeed's assertion; or the Trainer's refusal to evaluate before it has trained."""
        evidence = said(log, *_WORDS)
        stage = _STAGE.search(told(log, evidence)) if evidence else None
        if stage is None:
            cut = cut_in(log, ("runtime/engine", "assert not isinstance(optimizer, DummyOptim)"))
            evidence = cut or evidence
        else:
            cut = None
        if evidence and (stage or cut):
            yield self.log_finding(
                evidence,
                Text(
                    en="DeepSpeed was given a model without an optimizer (a reference, reward or teacher model, or "
                    "one to evaluate) under ZeRO-{stage}, which needs one.",
                    zh="DeepSpeed 在 ZeRO-{stage} 下得到一个没有优化器的模型（参考、奖励、教师模型，或只做评估的模"
                    "型），而该阶段需要优化器。",
                ).format(stage=stage.group(1).replace("{}", "1/2") if stage else "1/2"),
                cure=_CURE,
            )
        elif evidence := said(log, _INFERENCE):
            yield self.log_finding(
                evidence,
                Text(
                    en="The Trainer evaluates before it trains, so the model has no optimizer; under DeepSpeed that "
                    "works only with ZeRO-3.",
                    zh="Trainer 在训练之前评估，此时模型没有优化器；在 DeepSpeed 下只有 ZeRO-3 支持这种情况。",
                ),
                cure=(
                    Text(
                        en="Call trainer.train() first, evaluate in a process without --deepspeed, or use ZeRO-3",
                        zh="先调用 trainer.train()，或在不带 --deepspeed 的进程中评估，或使用 ZeRO-3",
                    ),
                ),
                certainty=Certainty.POSSIBLE,
            )


_CURE = (
    Text(
        en='Prepare the model that is only evaluated with "zero_optimization": {"stage": 0} (or 3), or keep it out '
        "of DeepSpeed",
        zh='用 "zero_optimization": {"stage": 0}（或 3）准备只做评估的模型，或不把它交给 DeepSpeed',
    ),
    Text(
        en="If it is to be trained: give the model and its optimizer to the same prepare() or deepspeed.initialize()",
        zh="若它需要训练：在同一次 prepare() 或 deepspeed.initialize() 中传入模型和优化器",
    ),
)
