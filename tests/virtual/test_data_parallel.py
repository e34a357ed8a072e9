"""``nn.DataParallel`` on virtual accelerators: what it moves, what its replicas hold, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual.forked import output_of, rehearse_all
from virtual.worlds import of_tensors

BEGINNING = """
import torch
from torch import nn
model = nn.DataParallel(nn.Sequential(nn.Linear(256, 512), nn.BatchNorm1d(512), nn.Linear(512, 4)))
"""
PROGRAMS = {
    "trains": f"""{BEGINNING}
model.cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    with torch.autocast("cuda", torch.bfloat16):
        out = model(torch.randn(64, 256).cuda())
    assert (out.shape, out.dtype, out.device) == ((64, 4), torch.bfloat16, torch.device("cuda", 0))
    nn.functional.cross_entropy(out.float(), torch.arange(64).cuda() % 4).backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "cpu_input": f"{BEGINNING}model(torch.randn(64, 256).cuda())\n",
}


@pytest.mark.slow
def test_a_model_is_copied_to_each_accelerator(tmp_path: Path) -> None:
    records = rehearse_all(tmp_path, PROGRAMS, stack="import torch\n")
    trains = records["trains"]
    assert trains.outcome == "completed", output_of(tmp_path, "trains")
    peaks = {device.device: of_tensors(device) for device in trains.devices}
    weights = 4 * (256 * 512 + 512 * 4)
    assert list(peaks) == [f"cuda:{number}" for number in range(8)]
    assert all(peak > weights for peak in peaks.values())
    assert peaks["cuda:0"] > 4 * weights  # with gradients and the optimizer's states, which the others have not
    assert peaks["cuda:7"] < 4 * weights
    failure = records["cpu_input"].failure
    assert failure is not None
    assert "module must have its parameters and buffers on device cuda:0" in failure.message
