from gonogo.evidence.script.identifiers import uses_name
from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script, Severity, translated


class Mxfp4WeightsNotTrainable(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """gpt-oss loaded without dequantization, in a program that trains."""
        if b"gpt-oss" not in script.source.data or b"train" not in script.source.data.lower():
            return
        for call in script.calls("*.from_pretrained"):
            name = call.argument(0) if call.node.args else call.keyword("pretrained_model_name_or_path")
            model = (name.string or "").lower()
            if not model.startswith("openai/gpt-oss") or not call.keyword("quantization_config").absent:
                continue
            if uses_name(call.node.func, "tokenizer") or call.keyword("quantization_config").unknown:
                continue
            yield self.finding(
                self.texts["cause"].format(model=name.value),
                certainty=Certainty.POSSIBLE,
                severity=Severity.WARNING,
                spans=call.place.span(),
                confirm=translated("pip show kernels finds it, and triton is 3.4 or newer"),
            )
