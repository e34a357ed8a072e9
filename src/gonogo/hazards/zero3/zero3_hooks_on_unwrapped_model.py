from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.hazards.facts.zero_files import stage_span
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Run, Script, Text
from gonogo.hazards.zero3._online import gathering_trainers
from gonogo.hazards.zero3._partitioned import cut_at, first_match, zero3

_NO_OPTIMIZER = Pattern(
    r"'\w*(?:For(?:Causal|Conditional|Sequence|Masked|Seq2Seq)\w*|PeftModel\w*|LMHead\w*|WithValueHead"
    r"|Model)' object has "
    r"no attribute 'optimizer'"
)
_ANY_MODEL = Pattern(r"'\w*Model' object has no attribute 'optimizer'")
_RL = Pattern(r"(?i)\btrl\b|\bGRPO|\bPPO|\bRLOO|online[-_ ]?dpo|\bGKD")
_READS_OPTIMIZER = Pattern(r"\.optimizer\b")
_GENERATION = ("unwrap_model_for_generation", "remove_hooks", "add_hooks", "trl/models/utils.py")
_CURE = (
    Text(
        'pip install "trl>=0.29" (0.16 is the first without this fault)',
        '执行 pip install "trl>=0.29"（自 0.16 起没有此缺陷）',
    ),
    Text(
        "Until then set ds3_gather_for_generation=False, or pass the wrapped model (self.model_wrapped)",
        "在此之前设 ds3_gather_for_generation=False，或传入包装后的模型（self.model_wrapped）",
    ),
)


class Zero3HooksOnUnwrappedModel(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A trainer that generates, with a TRL that looks for the hooks in the wrong place."""
        environment = run.environment
        if not environment.within("trl", ">=0.8,<0.15") or environment.within("deepspeed", ">=0.16.4"):
            return  # with that DeepSpeed another attribute is missing first: trl-too-old-for-deepspeed-hooks
        trl = environment.field("trl")
        for call in gathering_trainers(script, run):
            yield self.finding(
                Text(
                    "TRL {trl} looks for ZeRO-3's hooks at `model.optimizer`, which a model that is not wrapped yet "
                    "doesn't have: generation before the first training step ends with “object has no attribute "
                    "'optimizer'”.",
                    "TRL {trl} 在 `model.optimizer` 上寻找 ZeRO-3 的钩子，而尚未包装的模型没有它：首个训练步之前的生成"
                    "会以 “object has no attribute 'optimizer'” 结束。",
                ).format(trl=trl.get("< 0.15")),
                certainty=Certainty.LIKELY,
                cure=_CURE,
                spans=(trl.span(), call.script.headline(call.node).span(), stage_span(run)),
                confirm=Text("It generates before the first step", "首个训练步之前会生成"),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A model without ``optimizer``; sure where the frames are those of TRL's generation helper."""
        cause = Text(
            "TRL's helper for generation under ZeRO-3 was given the bare model; ZeRO-3's hooks hang on the DeepSpeed "
            "engine's optimizer.",
            "TRL 在 ZeRO-3 下的生成辅助函数收到的是裸模型，而 ZeRO-3 的钩子挂在 DeepSpeed 引擎的 optimizer 上。",
        )
        confirm = (
            Text(
                "The frames show trl/models/utils.py, remove_hooks or add_hooks",
                "调用栈中有 trl/models/utils.py 的 remove_hooks 或 add_hooks",
            ),
        )
        if evidence := first_match(log, _NO_OPTIMIZER, "AttributeError"):
            framed = isinstance(evidence, LoggedError) and evidence.passes(*_GENERATION)
            if framed:
                certainty = Certainty.CERTAIN
            elif isinstance(evidence, LoggedError) and evidence.frames and not evidence.passes("trl/"):
                return
            else:
                stage3 = zero3(log)
                likely = stage3 or log.find(_RL) or not log.find(_ANY_MODEL)
                certainty = Certainty.LIKELY if likely and stage3 is not False else Certainty.POSSIBLE
            yield self.log_finding(evidence, cause, cure=_CURE, certainty=certainty, confirm=confirm)
        elif cut := cut_at(log, "trl/models/utils.py", "remove_hooks", "add_hooks", code=_READS_OPTIMIZER):
            yield self.log_finding(cut, cause, cure=_CURE, certainty=Certainty.LIKELY, confirm=confirm)
