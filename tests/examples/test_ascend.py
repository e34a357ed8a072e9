"""Scenario 5 as it was reported: SLAM-Omni with ZeRO-3 on eight Ascend 910B4, HCCL and torch_npu."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shrunken import SMALLER, merged
from test_scenarios import example, explain, first_place, lines_with, rehearse

NAME = "slam_omni_dummy_loss"
GPUS = "8xAscend910B4-32G"


@pytest.mark.very_slow
@pytest.mark.timeout(1200)
def test_the_dummy_loss_fails_as_reported(tmp_path: Path) -> None:
    folder = example(NAME, tmp_path)
    config = folder / "model" / "config.json"
    config.write_text(json.dumps(merged(json.loads(config.read_text()), SMALLER[NAME])))
    status, report = rehearse(folder, "--", "bash", "launch.sh", gpus=GPUS)
    assert (status, report["verdict"]) == (1, "NO-GO"), explain(report)
    (found,) = (finding for finding in report["findings"] if finding["severity"] == "error")
    assert found["hazard"] == "zero3-direct-param-use-invalid-gradient"
    assert "[0]" in found["cause"]
    assert "[12480]" in found["cause"]
    path, line = first_place(report)
    assert line in lines_with(folder / path, "p.sum()")
    (rank,) = report["rehearsal"]["ranks"]
    assert rank["device"] == "npu:0"


@pytest.mark.very_slow
@pytest.mark.timeout(1200)
def test_without_the_dummy_loss_it_is_go_at_full_size(tmp_path: Path) -> None:
    status, report = rehearse(example(NAME, tmp_path), "--", "bash", "launch_fixed.sh", gpus=GPUS)
    assert (status, report["verdict"]) == (0, "GO"), explain(report)
    (rank,) = report["rehearsal"]["ranks"]
    assert rank["peak_reserved_bytes"] < (30208 - 1824) << 20
