from gonogo.hazards.facts.zero_files import stage_span, tests_the_stage
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Severity, translated
from gonogo.hazards.zero3._loading import knows_zero3


class Zero3CreateReferenceModel(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """Calls of it, once transformers knows of ZeRO-3."""
        if run.zero_stage != 3 or b"create_reference_model" not in script.source.data:
            return
        for call in script.calls("trl.create_reference_model"):
            known = knows_zero3(script, call.node)
            if known is False or tests_the_stage(script, call.node):
                continue
            yield self.finding(
                translated(
                    "create_reference_model copies the model, which ZeRO-3 has partitioned: TRL refuses it with a "
                    "ValueError."
                ),
                certainty=Certainty.CERTAIN if known else Certainty.LIKELY,
                severity=Severity.ERROR,
                cure=translated("Load the reference model with from_pretrained instead, and pass it as ref_model"),
                spans=(call.place.span(), stage_span(run)),
            )
