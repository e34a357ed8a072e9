"""A subclass that wraps virtual tensors, as Transformer Engine's weights in FP8 are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from virtual.worlds import virtual_session


class Wrapped(torch.Tensor):
    """Two bytes a number to the program, and something else inside."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.bfloat16, device="meta")
        made.inner = inner
        return made

    @property
    def device(self) -> Any:  # type: ignore[override]
        return self.inner.device

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inner = args[0].inner  # as Transformer Engine does it: the inner tensor's, with the classes as they came
        return cls(inner.__torch_dispatch__(func, types, [inner, *args[1:]], kwargs))


def test_it_hands_its_operators_to_what_it_wraps(tmp_path: Path) -> None:
    with virtual_session(tmp_path):
        whole = Wrapped(torch.zeros(4, 6, dtype=torch.uint8, device="cuda"))
        part = whole.view(-1)[3:9]
        assert (part.shape, part.inner.shape, part.inner.device.type) == ((6,), (6,), "cuda")


def test_its_legacy_type_names_the_device_that_the_program_sees(tmp_path: Path) -> None:
    with virtual_session(tmp_path):
        inner = torch.zeros(4, dtype=torch.uint8, device="cuda")
        assert inner.type() == "torch.cuda.ByteTensor"
        assert Wrapped(inner).type() == "torch.cuda.BFloat16Tensor"
        assert Wrapped(torch.zeros(4)).type() == "torch.BFloat16Tensor"
        assert Wrapped(torch.zeros(4, device="meta")).type() == "torch.meta.BFloat16Tensor"
