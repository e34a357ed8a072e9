from gonogo.hazards.facts.mismatch_in_log import LoggedDeviceMismatch, device_mismatches_in_training
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Hazard, Run, Severity, translated


class NpuTorchNpuVersionRegression(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """torch_npu 2.6.0, and a model that device_map spreads over several NPUs."""
        if not environment.within("torch-npu", "==2.6.0"):
            return
        place = environment.place("torch-npu")
        for script in run.scripts:
            for call in script.calls("*.from_pretrained"):
                mapped = call.keyword("device_map")
                if mapped.get() not in ("auto", "balanced", "balanced_low_0", "sequential"):
                    continue
                yield self.finding(
                    self.texts["cause_in_environment"].format(value=mapped.value),
                    severity=Severity.WARNING,
                    cure=(self.texts["cure"], translated("Or load on one NPU: ASCEND_RT_VISIBLE_DEVICES=0")),
                    spans=(place.span() if place is not None else None, mapped.span()),
                    confirm=translated("More than one NPU is visible"),
                )
                return

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch between NPUs in ``npu_dtype_cast``; less certain while loading a model, without an operator."""
        for mismatch in device_mismatches_in_training(log):
            certainty = _judge_certainty(mismatch, log)
            if certainty is None:
                continue
            version = log.setup.version_texts.get("torch-npu")
            yield self.log_finding(
                mismatch.evidence,
                self.texts["cause_in_log"].format(where=mismatch.sentence, version=f" {version}" if version else ""),
                certainty=certainty,
                confirm=self.texts["confirm"],
            )


def _judge_certainty(mismatch: LoggedDeviceMismatch, log: FailureLog) -> Certainty | None:
    if not mismatch.is_between_accelerators or not any(device.startswith("npu") for device in mismatch.devices):
        return None
    if "dtype_cast" in (mismatch.operator or "") or mismatch.passes("npu_dtype_cast"):
        return Certainty.CERTAIN
    loads = log.has("While copying the parameter") or mismatch.passes("from_pretrained", "load_state_dict")
    return Certainty.LIKELY if loads else Certainty.POSSIBLE if not mismatch.frames else None
