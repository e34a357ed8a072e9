from gonogo.hazards.facts.mismatch_in_log import LoggedDeviceMismatch, MisplacedTensor, device_mismatches_in_training
from gonogo.hazards.rule import Certainty, FailureLog, Finding, Findings, Hazard, Pattern, Run, Script, translated

_ADAPTER_PATTERN = Pattern(r"(?i)lora|peft")
_ADALORA_PATTERN = Pattern(r"\branknum\b|(?i:ada_?lora)")


class DeviceMismatchAdapterParam(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """AdaLoRA with a PEFT that leaves its ranknum on the CPU."""
        if b"AdaLoraConfig" not in script.source.data or run.environment.within("peft", "<0.4") is not True:
            return
        version = run.environment.field("peft")
        for call in script.calls("peft.AdaLoraConfig"):
            edit = run.environment.replacing_version("peft", "==0.4.0")
            yield self.finding(
                self.texts["cause_in_script"].format(version=version.get("< 0.4")),
                cure=translated("Upgrade: pip install 'peft>=0.4'"),
                spans=(call.place.span(), version.span(translated("this version"))),
                fixes=self.fix(translated("Use the first release with the fix"), edit, safe=False)
                if edit is not None
                else None,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch with the CPU at a line of PEFT's code that uses the adapter's own parameters."""
        adalora = log.find(_ADALORA_PATTERN) is not None or log.setup.mentions(r"(?i)adalora")
        adapts = log.find(_ADAPTER_PATTERN) is not None or log.setup.mentions(r"(?i)lora|peft")
        for mismatch in device_mismatches_in_training(log):
            certainty = _judge_certainty(mismatch, adalora, adapts)
            if certainty is not None:
                yield self._build_finding(mismatch, certainty, is_adalora=adalora)

    def _build_finding(self, mismatch: LoggedDeviceMismatch, certainty: Certainty, *, is_adalora: bool) -> Finding:
        return self.log_finding(
            mismatch.evidence,
            self.texts["cause"].format(
                mismatch=mismatch.sentence,
                what=translated("AdaLoRA's ranknum") if is_adalora else translated("the adapter's parameters"),
            ),
            certainty=certainty,
            module=mismatch.module,
            parameter="ranknum" if is_adalora else None,
            confirm=self.texts["confirm"],
        )


def _judge_certainty(mismatch: LoggedDeviceMismatch, is_adalora: bool, has_adapter: bool) -> Certainty | None:
    if mismatch.likely_tensor is MisplacedTensor.ADAPTER:
        return Certainty.CERTAIN if is_adalora else Certainty.LIKELY
    if is_adalora and mismatch.involves_cpu and not mismatch.is_between_accelerators and not mismatch.cpu_operand:
        return Certainty.LIKELY if mismatch.caller is None or mismatch.passes("peft/") else Certainty.POSSIBLE
    if mismatch.likely_tensor is MisplacedTensor.WEIGHT and (
        mismatch.passes("peft/tuners/") or (has_adapter and mismatch.argument == "mat2")
    ):
        return Certainty.POSSIBLE
    return None
