"""Whole worlds rehearsed: every program whose ranks part is found out, and no healthy one is suspected."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from world_programs import HANG, HEALTHY, WORLDS, Expected, world_size

HANG_SOON = ["mixed_image_text_zero3"]
HEALTHY_SOON = ["flag_synchronised_before_branch"]
"""What `make test` rehearses; the others are for `make test-all`."""


def rehearse(folder: Path, tmp_path: Path) -> dict[str, Any]:
    """The report of a rehearsal of all ranks."""
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    ranks = world_size(folder)
    command = ["--ranks", "all", "--gpus", f"{ranks}xA100-80G", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", "rehearse", *command, "--",
         "torchrun", "--nproc_per_node", str(ranks), "train.py"],
        cwd=copy, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr[-4000:]
    print(done.stdout)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def check_hang(name: str, tmp_path: Path) -> None:
    expected = Expected.of(name)
    report = rehearse(WORLDS / "hang" / name, tmp_path)
    assert report["verdict"] == "NO-GO"
    finding = report["findings"][0]
    assert finding["certainty"] == "certain"
    assert finding["hazard"] == expected.hazard
    assert finding["module"] == expected.module
    places = [(Path(span["path"]).name, span["line"]) for span in finding["spans"]]
    assert places[0] == (expected.file, expected.line)
    assert finding["ranks"] == sorted(rank for side in expected.ranks_apart for rank in side)


def check_healthy(name: str, tmp_path: Path) -> None:
    report = rehearse(WORLDS / "healthy" / name, tmp_path)
    assert report["findings"] == []
    assert report["verdict"] == "GO", report["skipped"]


@pytest.mark.slow
@pytest.mark.parametrize("name", HANG_SOON)
def test_parting_is_found(name: str, tmp_path: Path) -> None:
    check_hang(name, tmp_path)


@pytest.mark.very_slow
@pytest.mark.parametrize("name", [name for name in HANG if name not in HANG_SOON])
def test_every_parting_is_found(name: str, tmp_path: Path) -> None:
    check_hang(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY_SOON)
def test_healthy_world_goes(name: str, tmp_path: Path) -> None:
    check_healthy(name, tmp_path)


@pytest.mark.very_slow
@pytest.mark.parametrize("name", [name for name in HEALTHY if name not in HEALTHY_SOON])
def test_every_healthy_world_goes(name: str, tmp_path: Path) -> None:
    check_healthy(name, tmp_path)
