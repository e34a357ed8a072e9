from gonogo.hazards.facts.zero_usage import stage_span
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, LoggedError, Pattern, Run, Script, translated
from gonogo.hazards.zero3._online_trainers import gathering_trainers
from gonogo.hazards.zero3._zero3_in_log import find_cut_traceback, find_error_or_line, is_under_zero3

_ANY_MODEL_PATTERN = Pattern(r"'\w*Model' object has no attribute 'optimizer'")
_RL_PATTERN = Pattern(r"(?i)\btrl\b|\bGRPO|\bPPO|\bRLOO|online[-_ ]?dpo|\bGKD")
_READS_OPTIMIZER_PATTERN = Pattern(r"\.optimizer\b")
_GENERATION_FRAMES = ("unwrap_model_for_generation", "remove_hooks", "add_hooks", "trl/models/utils.py")


class Zero3HooksOnUnwrappedModel(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A trainer that generates, with a TRL that looks for the hooks in the wrong place."""
        environment = run.environment
        if not environment.within("trl", ">=0.8,<0.15") or environment.within("deepspeed", ">=0.16.4"):
            return  # that DeepSpeed fails at another missing attribute first: trl-too-old-for-deepspeed-hooks
        trl = environment.field("trl")
        for call in gathering_trainers(script, run):
            yield self.finding(
                self.texts["cause_in_script"].format(trl=trl.get("< 0.15")),
                spans=(trl.span(), call.script.first_line_place(call.node).span(), stage_span(run)),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A model without an attribute ``optimizer``; certain if the frames are those of TRL's generation helper."""
        cause = self.texts["cause_in_log"]
        confirm = (translated("The frames show trl/models/utils.py, remove_hooks or add_hooks"),)
        if evidence := find_error_or_line(log, self.patterns["no_optimizer"], "AttributeError"):
            framed = isinstance(evidence, LoggedError) and evidence.passes(*_GENERATION_FRAMES)
            if framed:
                certainty = Certainty.CERTAIN
            elif isinstance(evidence, LoggedError) and evidence.frames and not evidence.passes("trl/"):
                return
            else:
                stage3 = is_under_zero3(log)
                likely = stage3 or log.find(_RL_PATTERN) or not log.find(_ANY_MODEL_PATTERN)
                certainty = Certainty.LIKELY if likely and stage3 is not False else Certainty.POSSIBLE
            yield self.log_finding(evidence, cause, certainty=certainty, confirm=confirm)
        elif cut := find_cut_traceback(
            log, "trl/models/utils.py", "remove_hooks", "add_hooks", code=_READS_OPTIMIZER_PATTERN
        ):
            yield self.log_finding(cut, cause, confirm=confirm)
