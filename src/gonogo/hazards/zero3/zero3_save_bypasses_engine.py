import ast

from gonogo.hazards.facts.zero_files import stage_span, tests_the_stage
from gonogo.hazards.log_rule import LoggedHazard
from gonogo.hazards.rule import Certainty, Findings, Run, Script, Text

_UNWRAPPED = ("accelerate.Accelerator.unwrap_model", "accelerate.utils.extract_model_from_parallel")
_GIVE_ENGINE = Text(
    "Give accelerator.get_state_dict the prepared model (the engine), on all ranks; unwrap only for save_pretrained(…, "
    "state_dict=…)",
    "把 prepare 之后的模型（引擎）传给 accelerator.get_state_dict，并在所有 rank 上调用；仅在 save_pretrained(…, "
    "state_dict=…) 时解包",
)
_PPO = (
    Text(
        "With TRL's PPOTrainer: train with ZeRO-2, or save in its save_model through the engine (keep self.deepspeed, "
        "and take the policy's keys of its state dict); TRL 1.13 has the trainer no more",
        "使用 TRL 的 PPOTrainer 时：用 ZeRO-2 训练，或在 save_model 中通过引擎保存（保留 self.deepspeed，从其 "
        "state dict 取出 policy 的键）；TRL 1.13 起已移除该训练器",
    ),
)


class Zero3SaveBypassesEngine(LoggedHazard):
    cures = (_GIVE_ENGINE, *_PPO)

    def in_script(self, script: Script, run: Run) -> Findings:
        """An unwrapped model given to ``get_state_dict``, or a PPOTrainer of TRL, under ZeRO-3."""
        if run.zero_stage != 3:
            return
        for call in script.calls("accelerate.Accelerator.get_state_dict"):
            given = call.node.args[0] if call.node.args else None
            if given is None or tests_the_stage(script, call.node):
                continue
            made = script.bound_to(given)
            calls = [each for each in script.calls(*_UNWRAPPED) if each.node is made]
            inner = isinstance(made, ast.Attribute) and made.attr == "module"
            if calls or inner:
                yield self.finding(
                    Text(
                        "`{code}` is the bare model; under ZeRO-3 get_state_dict asks DeepSpeed's engine for the "
                        "gathered weights, and ends with an AttributeError.",
                        "`{code}` 是裸模型；ZeRO-3 下 get_state_dict 要向 DeepSpeed 引擎索取聚合后的权重，会以 "
                        "AttributeError 结束。",
                    ).format(code=ast.unparse(given)),
                    certainty=Certainty.LIKELY,
                    cure=_GIVE_ENGINE,
                    spans=(call.place.span(), stage_span(run)),
                )
        if run.environment.within("trl", ">=0.12,<1.13") and str(run.arguments.get("save_strategy").get("")) != "no":
            for call in script.calls("trl.PPOTrainer", "trl.experimental.ppo.PPOTrainer"):
                trl = run.environment.field("trl")
                yield self.finding(
                    Text(
                        "TRL {trl}'s PPOTrainer saves the policy past DeepSpeed's engine: under ZeRO-3 the first "
                        "save ends with an AttributeError.",
                        "TRL {trl} 的 PPOTrainer 绕过 DeepSpeed 引擎保存策略模型：ZeRO-3 下第一次保存会以 "
                        "AttributeError 结束。",
                    ).format(trl=trl.get("< 1.13")),
                    certainty=Certainty.LIKELY,
                    cure=_PPO,
                    spans=(trl.span(), call.script.headline(call.node).span(), stage_span(run)),
                )
