from gonogo.hazards.facts.zero_files import stage_span, tests_the_stage
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Severity, Text
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
                Text(
                    "create_reference_model copies the model, which ZeRO-3 has partitioned: TRL refuses it with a "
                    "ValueError.",
                    "create_reference_model 要复制已被 ZeRO-3 切分的模型：TRL 会以 ValueError 拒绝。",
                ),
                certainty=Certainty.CERTAIN if known else Certainty.LIKELY,
                severity=Severity.ERROR,
                cure=Text(
                    "Load the reference model by from_pretrained instead, and pass it as ref_model",
                    "改用 from_pretrained 加载参考模型，并作为 ref_model 传入",
                ),
                spans=(call.place.span(), stage_span(run)),
            )
