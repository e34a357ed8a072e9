from gonogo.hazards.facts.zero_usage import is_under_zero_condition, stage_span
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script
from gonogo.hazards.zero3._loading import is_zero3_configured_at


class Zero3CreateReferenceModel(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """Calls of ``create_reference_model`` when transformers already knows about ZeRO-3."""
        if run.zero_stage != 3 or b"create_reference_model" not in script.source.data:
            return
        for call in script.calls("trl.create_reference_model"):
            known = is_zero3_configured_at(script, call.node)
            if known is False or is_under_zero_condition(script, call.node):
                continue
            yield self.finding(
                certainty=Certainty.CERTAIN if known else Certainty.LIKELY, spans=(call.place.span(), stage_span(run))
            )
