"""Operators that certain architectures need: histograms of integers, the CTC loss, sizes computed as tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
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
