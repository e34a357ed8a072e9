import ast

from gonogo.hazards.facts.zero_usage import is_under_zero_condition, stage_span
from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script, translated

_UNWRAPPED = ("accelerate.Accelerator.unwrap_model", "accelerate.utils.extract_model_from_parallel")
_GIVE_ENGINE = translated(
    "Pass the prepared model (the engine) to accelerator.get_state_dict on all ranks; unwrap only for "
    "save_pretrained(…, state_dict=…)"
)
_PPO = (
    translated(
        "With TRL's PPOTrainer: train with ZeRO-2, or save in its save_model through the engine (keep "
        "self.deepspeed, and take the policy's keys from its state dict); TRL 1.13 no longer has this trainer"
    ),
)


class Zero3SaveBypassesEngine(LoggedHazard):
    cures = (_GIVE_ENGINE, *_PPO)

    def in_script(self, script: Script, run: Run) -> Findings:
        """An unwrapped model passed to ``get_state_dict``, or TRL's PPOTrainer, under ZeRO-3."""
        if run.zero_stage != 3:
            return
        for call in script.calls("accelerate.Accelerator.get_state_dict"):
            given = call.node.args[0] if call.node.args else None
            if given is None or is_under_zero_condition(script, call.node):
                continue
            made = script.bound_to(given)
            calls = [each for each in script.calls(*_UNWRAPPED) if each.node is made]
            inner = isinstance(made, ast.Attribute) and made.attr == "module"
            if calls or inner:
                yield self.finding(
                    self.texts["bare_model_cause"].format(code=ast.unparse(given)),
                    certainty=Certainty.LIKELY,
                    cure=_GIVE_ENGINE,
                    spans=(call.place.span(), stage_span(run)),
                )
        if run.environment.within("trl", ">=0.12,<1.13") and str(run.arguments.get("save_strategy").get("")) != "no":
            for call in script.calls("trl.PPOTrainer", "trl.experimental.ppo.PPOTrainer"):
                trl = run.environment.field("trl")
                yield self.finding(
                    self.texts["trl_cause"].format(trl=trl.get("< 1.13")),
                    certainty=Certainty.LIKELY,
                    cure=_PPO,
                    spans=(trl.span(), call.script.first_line_place(call.node).span(), stage_span(run)),
                )
