from gonogo.hazards.facts.zero_usage import stage_span
from gonogo.hazards.rule import Findings, LoggedHazard, Run, Script
from gonogo.hazards.zero3._online_trainers import gathering_trainers


class TrlTooOldForDeepspeedHooks(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A trainer that generates under ZeRO-3, with a TRL that calls the old name."""
        environment = run.environment
        if not environment.within("trl", ">=0.8,<0.16") or not environment.within("deepspeed", ">=0.16.4"):
            return
        trl, deepspeed = environment.field("trl"), environment.field("deepspeed")
        for call in gathering_trainers(script, run):
            yield self.finding(
                self.texts["cause"].format(trl=trl.get("< 0.16"), deepspeed=deepspeed.get(">= 0.16.4")),
                spans=(trl.span(), call.script.first_line_place(call.node).span(), deepspeed.span(), stage_span(run)),
            )
