"""Operators that certain architectures need: histograms, the CTC loss, sizes as tensors, grouped matrix products."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from packaging.version import Version
from virtual_worker import answers


@pytest.mark.slow
def test_experts_are_counted_and_ctc_has_its_shapes(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    told = answers(
        folder,
        """
        import torch.nn.functional as F
        known = torch.histc(torch.tensor([1, 3, 3, 2]).cuda().int(), bins=4, min=0, max=3)
        unknown = torch.empty(1 << 20, device="cuda").uniform_().long()
        try:
            torch.histc(torch.tensor([1, 2]).int(), bins=2)
            on_cpu = "ran"
        except NotImplementedError as error:
            on_cpu = str(error)
        logits = torch.empty(20, 2, 10, device="cuda", requires_grad=True)
        targets = torch.ones(2, 5, dtype=torch.long).cuda()
        lengths = torch.tensor([20, 20]).cuda()
        with torch.backends.cudnn.flags(enabled=False):
            flat = targets.masked_select(targets >= 0)
            loss = F.ctc_loss(logits.log_softmax(-1), flat, lengths, (targets >= 0).sum(-1), zero_infinity=True)
        loss.backward()
        answer(
            known=known.tolist(),
            dtype=str(known.dtype),
            counted_on=str(torch.histc(unknown.int(), bins=4, min=0, max=3).device),
            bins_on=str(torch.bincount(unknown, minlength=4).device),
            on_cpu=on_cpu,
            loss=[list(loss.shape), str(loss.device)],
            gradient=list(logits.grad.shape),
            old=[str(targets.new(2, 3).device), list(targets.new(targets.size()).shape), targets.new([1, 2]).tolist()],
            divided=torch.div(512, 256, rounding_mode="trunc").item(),
            chunks=list(logits.new_zeros((2, torch.div(512, 256, rounding_mode="trunc") - 1 + 1)).shape),
        )
        """,
    )
    assert told["known"] == [0, 1, 1, 2]
    assert told["dtype"] == "torch.int32"
    assert told["counted_on"] == told["bins_on"] == "cuda:0"
    assert "not implemented for 'Int'" in told["on_cpu"]
    assert told["loss"] == [[], "cuda:0"]
    assert told["gradient"] == [20, 2, 10]
    assert told["old"] == ["cuda:0", [2, 5], [1, 2]]
    assert told["divided"] == 2
    assert told["chunks"] == [2, 2]


PRODUCTS = """
def products(device, torch, call=torch._grouped_mm):
    told = {}
    ends = torch.tensor([4, 4, 10], dtype=torch.int32, device=device)
    others = torch.tensor([8, 8, 16], dtype=torch.int32, device=device)
    layouts = {"rows": ((10, 16), (3, 16, 24), ends), "columns": ((16, 10), (10, 24), ends),
               "batches": ((3, 8, 16), (3, 16, 24), None), "left batches": ((3, 8, 16), (16, 16), others),
               "odd rows": ((10, 15), (3, 15, 24), ends), "unlike": ((10, 16), (3, 17, 24), ends)}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for name, (left, right, offsets) in layouts.items():
            left = torch.ones(left, dtype=dtype, device=device)
            left = left.t().contiguous().t() if name == "columns" else left
            right = torch.ones(right, dtype=dtype, device=device, requires_grad=True)
            try:
                out = call(left, right, offs=offsets)
                out.square().sum().backward()
                told[f"{name} {dtype}"] = [list(out.shape), list(out.stride()), str(out.dtype),
                                           list(right.grad.shape), str(right.grad.dtype)]
            except RuntimeError:
                told[f"{name} {dtype}"] = "refused"
    return told
"""


@pytest.mark.slow
def test_grouped_products_are_taken_in_the_dtypes_that_kernels_take(tmp_path: Path) -> None:
    if not hasattr(torch, "_grouped_mm") or Version(torch.__version__) < Version("2.9"):
        pytest.skip("before torch 2.9 kernels took bfloat16 alone")
    folder = tmp_path / "here"
    folder.mkdir()
    told = answers(folder, PRODUCTS + "answer(cuda=products('cuda', torch), cpu=products('cpu', torch))")
    here: dict[str, object] = {}
    exec(PRODUCTS + "real = products('cpu', torch)", {"torch": torch}, here)
    real = here["real"]
    assert isinstance(real, dict)
    assert "refused" in real.values()
    assert sum(value != "refused" for value in real.values()) >= 9
    if torch.version.cuda is None:  # a CUDA build rounds its rows up
        assert told["cuda"] == real
    assert told["cpu"] == real
