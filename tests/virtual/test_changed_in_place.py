"""What an optimizer changes in place is noticed by a backward that needs it as it was, as on an accelerator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from virtual.worlds import virtual_session


@pytest.mark.parametrize(
    ("options", "raises"),
    [({"foreach": True}, True), ({"foreach": False}, True), ({"fused": True}, False), ({}, True)],
    ids=["lists", "one by one", "fused", "torch's choice"],
)
def test_a_second_backward_through_stepped_weights(tmp_path: Path, options: dict[str, bool], raises: bool) -> None:
    """Only the fused kernels tell autograd nothing."""
    with virtual_session(tmp_path) as session, session.mode:
        layer = nn.Linear(4, 4).cuda()
        optimizer = torch.optim.AdamW(layer.parameters(), **options)  # type: ignore[arg-type]
        out = layer(torch.randn(2, 4, device="cuda", requires_grad=True)).sum()
        out.backward(retain_graph=True)
        optimizer.step()
        if raises:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                out.backward()
        else:
            out.backward()


def test_a_backward_after_the_next_forward_is_as_ever(tmp_path: Path) -> None:
    with virtual_session(tmp_path) as session, session.mode:
        layer = nn.Linear(4, 4).cuda()
        optimizer = torch.optim.AdamW(layer.parameters(), foreach=True)
        for _ in range(3):
            layer(torch.randn(2, 4, device="cuda")).sum().backward()
            nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
