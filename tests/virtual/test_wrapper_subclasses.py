"""A library's wrapper subclass on accelerators: its device, and operators in place, which C++ handles by device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from virtual.worlds import virtual_session


class Quantized(torch.Tensor):
    """Codes with a scale, as quantized optimizer states and weights are made."""

    codes: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls: Any, codes: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, device=codes.device)  # type: ignore[attr-defined]

    def __init__(self, codes: torch.Tensor, scale: torch.Tensor) -> None:
        self.codes, self.scale = codes, scale

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        whole = [one.codes.float() * one.scale if isinstance(one, Quantized) else one for one in args]
        if func is torch.ops.aten.copy_.default and isinstance(args[0], Quantized):
            args[0].codes.copy_(whole[1].to(torch.uint8))
            return args[0]
        if func is torch.ops.aten.detach.default:
            return Quantized(args[0].codes, args[0].scale)
        return func(*whole, **(kwargs or {}))


@pytest.fixture(autouse=True)
def session(tmp_path: Path) -> Iterator[None]:
    with virtual_session(tmp_path):
        yield


def quantized(device: str) -> Any:
    return Quantized(torch.zeros(8, 8, dtype=torch.uint8, device=device), torch.ones((), device=device))


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_it_reports_the_device_of_what_it_holds(device: str) -> None:
    state = quantized(device)
    assert state.device == state.codes.device
    assert (state.device.type, state.is_cuda, state.is_cpu, state.is_meta) == ("cuda", True, False, False)
    assert state.get_device() == state.device.index


def test_it_is_written_and_read() -> None:
    state, gradient = quantized("cuda"), torch.ones(8, 8, device="cuda")
    with torch.no_grad():
        state.copy_(state.lerp(gradient, 0.1))
        assert state.float().dtype == torch.float32


def test_a_weight_has_a_gradient() -> None:
    weight = torch.nn.Parameter(quantized("cuda"))
    (weight * torch.ones(8, 8, device="cuda")).sum().backward()
    assert weight.grad is not None
    assert weight.grad.device.type == "cuda"


def test_one_on_the_cpu_stays_there() -> None:
    assert (quantized("cpu").device.type, quantized("cpu").is_cuda) == ("cpu", False)
