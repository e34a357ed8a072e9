"""transformers' Trainer with the callback: what `gonogo run` does from outside, from within."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from guard.worlds import HERE
from ports import free_port

from gonogo.evidence.guarded.files import read_run

pytestmark = pytest.mark.slow


def train(folder: Path, *arguments: str, ranks: int) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={ranks}"]
    command += [f"--master_port={free_port()}", str(HERE / "trainer.py"), str(folder), *arguments]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


@pytest.mark.very_slow
def test_two_ranks_with_ddp(tmp_path: Path) -> None:
    errors = train(tmp_path, ranks=2)
    assert "gonogo" not in errors
    [folder] = (tmp_path / "out" / "gonogo-runs").iterdir()
    run = read_run(folder)
    assert [rank.rank for rank in run.ranks] == [0, 1]
    for rank in run.ranks:
        assert rank.faults == []
        assert rank.last_step == 4
        assert rank.joined is not None
        assert rank.joined.facts["seed"] == "11"
        assert rank.joined.facts["training samples"] == "24"
        assert rank.joined.facts["parameters"] == "5"
        assert rank.end is not None
    compared = run.ranks[0].compared
    assert compared is not None
    assert (compared.differences, compared.missing, compared.sum_checked) == ((), (), True)


@pytest.mark.very_slow
def test_one_rank_with_deepspeed(tmp_path: Path) -> None:
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}},
        "zero_optimization": {"stage": 2},
    }
    errors = train(tmp_path, json.dumps(config), ranks=1)
    assert "gonogo" not in errors
    [rank] = read_run(tmp_path / "run").ranks
    assert rank.faults == []
    assert rank.last_step == 4
    assert rank.joined is not None
    assert rank.joined.details["deepspeed config"]["zero_optimization.stage"] == "2"
    assert {census.moment for census in rank.placements} == {"start", "first-step"}
    assert "master-weights" in {place.what for place in rank.placements[0].places}
