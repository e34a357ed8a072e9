from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.mismatch_in_log import LoggedMismatch, training_mismatches
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run, Severity, translated


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
                    translated(
                        "torch_npu 2.6.0 can't copy and cast a tensor from one NPU to another, and "
                        "device_map={value!r} spreads the model over all visible NPUs."
                    ).format(value=mapped.value),
                    certainty=Certainty.LIKELY,
                    severity=Severity.WARNING,
                    cure=(
                        translated(
                            "Install a later post release of torch_npu 2.6.0, with the CANN version it requires"
                        ),
                        translated("Or load on one NPU: ASCEND_RT_VISIBLE_DEVICES=0"),
                    ),
                    spans=(place.span() if place is not None else None, mapped.span()),
                    confirm=translated("More than one NPU is visible"),
                )
                return

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch between NPUs in ``npu_dtype_cast``; less certain while loading a model, without an operator."""
        for mismatch in training_mismatches(log):
            certainty = _certainty(mismatch, log)
            if certainty is None:
                continue
            version = log.setup.version_texts.get("torch-npu")
            yield self.log_finding(
                mismatch.evidence,
                translated(
                    "{where}. torch_npu{version} casts across devices with an operator that needs both tensors "
                    "on one device; the bug is in torch_npu, not in the script."
                ).format(where=mismatch.sentence, version=f" {version}" if version else ""),
                cure=(
                    translated(
                        "Install a newer torch_npu for your torch (pip install -U torch-npu==<torch "
                        "version>.post*), with the CANN version it requires"
                    ),
                    translated(
                        "Until then load on one NPU (ASCEND_RT_VISIBLE_DEVICES=0) or on the CPU, or without changing "
                        "the dtype"
                    ),
                ),
                certainty=certainty,
                confirm=translated(
                    "torch.ones(2).to('npu:0').copy_(torch.ones(2, dtype=torch.float16, device='npu:1')) fails"
                ),
            )


def _certainty(mismatch: LoggedMismatch, log: FailureLog) -> Certainty | None:
    if not mismatch.is_between_accelerators or not any(device.startswith("npu") for device in mismatch.devices):
        return None
    if "dtype_cast" in (mismatch.operator or "") or mismatch.passes("npu_dtype_cast"):
        return Certainty.CERTAIN
    loads = log.has("While copying the parameter") or mismatch.passes("from_pretrained", "load_state_dict")
    return Certainty.LIKELY if loads else Certainty.POSSIBLE if not mismatch.frames else None
