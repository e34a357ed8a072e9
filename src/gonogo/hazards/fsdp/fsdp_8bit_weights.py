from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script, translated


class Fsdp8bitWeights(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """An 8-bit model with an accelerate config that asks for FSDP."""
        if b"load_in_8bit" not in script.source.data or run.accelerate is None:
            return
        kind = run.accelerate.distributed_type
        if kind.value != "FSDP":
            return
        for call in script.calls("*.BitsAndBytesConfig", "*.from_pretrained"):
            requested = call.keyword("load_in_8bit")
            if requested.truth is True:
                yield self.finding(
                    self.cause_in_script,
                    certainty=Certainty.LIKELY,
                    spans=(requested.span(), kind.span(translated("FSDP is requested here"))),
                )

    cause_in_script = translated("The model is loaded in 8 bits, but FSDP shards only floating-point parameters.")
