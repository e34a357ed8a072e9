from gonogo.evidence.log.cut import cut_in
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.hazards.config._without_optimizer import prepared_without_optimizer
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Pattern, Run, Script, Text

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

    name = "ds-eval-model-needs-no-optimizer"
    title = Text(
        en="A model without an optimizer is prepared under ZeRO-1 or ZeRO-2",
        zh="没有优化器的模型在 ZeRO-1 或 ZeRO-2 下初始化",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """A model that is prepared alone, or evaluated by a Trainer that never trains."""
        yield from prepared_without_optimizer(self, script, run)

    log_words = ("requires an optimizer", _INFERENCE, "isinstance(optimizer, DummyOptim)")

    def in_log(self, log: FailureLog) -> Findings:
        """DeepSpeed's assertion; or the Trainer's refusal to evaluate before it has trained."""
        evidence = first_match(log, *_WORDS)
        stage = _STAGE.search(matched_text(log, evidence)) if evidence else None
        if stage is None:
            cut = cut_in(log, ("runtime/engine", "assert not isinstance(optimizer, DummyOptim)"))
            evidence = cut or evidence
        else:
            cut = None
        if evidence and (stage or cut):
            yield self.log_finding(
                evidence,
                Text(
                    en="DeepSpeed was given a model without an optimizer (a reference, reward or teacher model, or one "
                    "to evaluate) under ZeRO-{stage}, which needs one.",
                    zh="DeepSpeed 在 ZeRO-{stage} 下得到一个没有优化器的模型（参考、奖励、教师模型，或只做评估的模型）"
                    "，而该阶段需要优化器。",
                ).format(stage=stage.group(1).replace("{}", "1/2") if stage else "1/2"),
                cure=_CURE,
            )
        elif evidence := first_match(log, _INFERENCE):
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
