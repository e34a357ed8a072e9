from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.mismatch_in_log import LoggedMismatch, mismatches_in
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run, Severity, Text


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
                    Text(
                        "torch_npu 2.6.0 can't copy and cast a tensor from one NPU to another, and "
                        "device_map={value!r} spreads the model over all that it sees.",
                        "torch_npu 2.6.0 无法在 NPU 之间拷贝并转换张量类型，而 device_map={value!r} 会把模型分布到所有"
                        "可见的 NPU 上。",
                    ).format(value=mapped.value),
                    certainty=Certainty.LIKELY,
                    severity=Severity.WARNING,
                    cure=(
                        Text(
                            "Install a later post release of torch_npu 2.6.0, with the CANN that it asks for",
                            "安装 torch_npu 2.6.0 的后续 post 版本，并配套其要求的 CANN",
                        ),
                        Text(
                            "Or load on one NPU: ASCEND_RT_VISIBLE_DEVICES=0",
                            "或只在一张 NPU 上加载：ASCEND_RT_VISIBLE_DEVICES=0",
                        ),
                    ),
                    spans=(place.span() if place is not None else None, mapped.span()),
                    confirm=Text("More than one NPU is visible", "可见的 NPU 多于一张"),
                )
                return

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch between NPUs in ``npu_dtype_cast``; less sure where a model is loaded and no operator is named."""
        for mismatch in mismatches_in(log):
            certainty = _certainty(mismatch, log)
            if certainty is None:
                continue
            version = log.setup.version_texts.get("torch-npu")
            yield self.log_finding(
                mismatch.evidence,
                Text(
                    "{where}. torch_npu{version} casts across devices with an operator that needs both tensors on one; "
                    "the fault is torch_npu's, not the script's.",
                    "{where}。torch_npu{version} 用一个要求两个张量在同一设备的算子做跨设备类型转换；这是 torch_npu 的"
                    "缺陷，与脚本无关。",
                ).format(where=mismatch.sentence, version=f" {version}" if version else ""),
                cure=(
                    Text(
                        "Install a newer torch_npu for your torch (pip install -U torch-npu==<torch version>.post*), "
                        "with the CANN that it asks for",
                        "为当前 torch 安装更新的 torch_npu（pip install -U torch-npu==<torch 版本>.post*），并配套其要"
                        "求的 CANN",
                    ),
                    Text(
                        "Until then load on one NPU (ASCEND_RT_VISIBLE_DEVICES=0) or on the CPU, or without changing "
                        "the dtype",
                        "在此之前：只用一张 NPU（ASCEND_RT_VISIBLE_DEVICES=0）或在 CPU 上加载，或不改变类型",
                    ),
                ),
                certainty=certainty,
                confirm=Text(
                    "torch.ones(2).to('npu:0').copy_(torch.ones(2, dtype=torch.float16, device='npu:1')) fails",
                    "torch.ones(2).to('npu:0').copy_(torch.ones(2, dtype=torch.float16, device='npu:1')) 会失败",
                ),
            )


def _certainty(mismatch: LoggedMismatch, log: FailureLog) -> Certainty | None:
    if not mismatch.between_accelerators or not any(device.startswith("npu") for device in mismatch.devices):
        return None
    if "dtype_cast" in (mismatch.operator or "") or mismatch.passes("npu_dtype_cast"):
        return Certainty.CERTAIN
    loads = log.has("While copying the parameter") or mismatch.passes("from_pretrained", "load_state_dict")
    return Certainty.LIKELY if loads else Certainty.POSSIBLE if not mismatch.frames else None
