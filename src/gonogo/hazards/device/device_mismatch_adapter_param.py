from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.mismatch_in_log import LoggedMismatch, Owner, mismatches_in
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Pattern, Run, Script, translated

_ADAPTS = Pattern(r"(?i)lora|peft")
_RANKNUM = Pattern(r"\branknum\b|(?i:ada_?lora)")


class DeviceMismatchAdapterParam(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """AdaLoRA with a PEFT that leaves its ranknum on the CPU."""
        if b"AdaLoraConfig" not in script.source.data or run.environment.within("peft", "<0.4") is not True:
            return
        version = run.environment.field("peft")
        for call in script.calls("peft.AdaLoraConfig"):
            edit = run.environment.replacing_version("peft", "==0.4.0")
            yield self.finding(
                translated(
                    "PEFT {version} leaves AdaLoRA's ranknum on the CPU when the adapter is put on the GPU (fixed in "
                    "0.4.0)."
                ).format(version=version.get("< 0.4")),
                certainty=Certainty.LIKELY,
                cure=translated("Upgrade: pip install 'peft>=0.4'"),
                spans=(call.place.span(), version.span(translated("this version"))),
                fixes=self.fix(translated("Use the first release with the fix"), edit, safe=False)
                if edit is not None
                else None,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch with the CPU at a line of PEFT's that uses the adapter's own parameters."""
        adalora = log.find(_RANKNUM) is not None or log.setup.mentions(r"(?i)adalora")
        adapts = log.find(_ADAPTS) is not None or log.setup.mentions(r"(?i)lora|peft")
        for mismatch in mismatches_in(log):
            certainty = _certainty(mismatch, adalora, adapts)
            if certainty is not None:
                yield self._finding(mismatch, certainty, adalora=adalora)

    def _finding(self, mismatch: LoggedMismatch, certainty: Certainty, *, adalora: bool) -> Finding:
        return self.log_finding(
            mismatch.evidence,
            translated(
                "{mismatch}. The line uses {what}, which stayed on the CPU when the base model was moved to the GPU."
            ).format(
                mismatch=mismatch.sentence,
                what=translated("AdaLoRA's ranknum") if adalora else translated("the adapter's parameters"),
            ),
            cure=(
                translated("Upgrade PEFT: pip install -U peft (0.4.0 and later move AdaLoRA's ranknum)"),
                translated(
                    "Or move the adapter after it is created: for name, p in model.named_parameters(): if "
                    '"lora_" in name or "ranknum" in name: p.data = p.data.to(device)'
                ),
            ),
            certainty=certainty,
            module=mismatch.module,
            parameter="ranknum" if adalora else None,
            confirm=translated(
                'Print the devices: {n: p.device for n, p in model.named_parameters() if "lora" in n or "ranknum" in n}'
            ),
        )


def _certainty(mismatch: LoggedMismatch, adalora: bool, adapts: bool) -> Certainty | None:
    if mismatch.owner is Owner.ADAPTER:
        return Certainty.CERTAIN if adalora else Certainty.LIKELY
    if adalora and mismatch.with_host and not mismatch.between_accelerators and not mismatch.on_host:
        return Certainty.LIKELY if mismatch.caller is None or mismatch.passes("peft/") else Certainty.POSSIBLE
    if mismatch.owner is Owner.WEIGHT and (mismatch.passes("peft/tuners/") or (adapts and mismatch.argument == "mat2")):
        return Certainty.POSSIBLE
    return None
