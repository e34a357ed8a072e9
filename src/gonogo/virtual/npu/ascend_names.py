"""The differences of ``torch.npu`` from ``torch.cuda``: Ascend's names and error messages."""

from __future__ import annotations

from typing import Any

from gonogo.virtual.cuda.state import VirtualCuda

VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"


class VirtualNpu(VirtualCuda):
    """The state behind ``torch.npu``."""

    kind = "npu"
    c10_type = 20
    """c10::DeviceType::PrivateUse1"""
    visible_variable = VISIBLE

    def no_device_message(self) -> str:
        """torch_npu's error message if no device is visible."""
        return "No NPUs are available"

    def invalid_ordinal_message(self, index: int) -> str:
        """torch_npu's error message for a device index that doesn't exist."""
        return (
            "NPU function error: c10_npu::SetDevice(device), error code is 107001\nERR00100 PTA call acl api failed.\n"
            "[Error]: Invalid device ID.\n        Check whether the device ID is valid.\n"
            f"(device {index} was asked for; this process sees {self.count}: 0 to {self.count - 1})"
        )

    def device_index_to_set(self, device: Any) -> int:
        """The index for ``torch.npu.set_device``, which accepts ``npu`` for the current device."""
        return self.device_index(device)
