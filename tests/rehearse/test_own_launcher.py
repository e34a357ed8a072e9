"""Launchers of a project's own: Python programs that start the training by a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Verdict
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse

_TRAIN = """
import argparse
import os
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int)
parser.add_argument("--world", type=int)
parser.add_argument("--local_rank")
args = parser.parse_args()
assert os.environ["RUN_NAME"] == "mine" and open("run.json").read() == "{}"
if args.rank is None:
    dist.init_process_group("nccl")
else:
    dist.init_process_group("nccl", "tcp://127.0.0.1:29511", rank=args.rank, world_size=args.world)
rank = dist.get_rank()
torch.cuda.set_device(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 8).cuda())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(4, 16, device="cuda")).sum().backward()
    optimizer.step()
"""
_LAUNCH = """
import os
import subprocess
import sys
import torch

subprocess.run([sys.executable, "make_config.py"], check=True)
os.environ["RUN_NAME"] = "mine"
count = torch.cuda.device_count()
{start}
open("after.txt", "w").close()
"""

pytestmark = pytest.mark.slow


def rehearsed(folder: Path, start: str) -> RehearsalRecord:
    """The record of a launcher that starts the training so."""
    (folder / "train.py").write_text(_TRAIN)
    (folder / "make_config.py").write_text("open('run.json', 'w').write('{}')\n")
    (folder / "launch.py").write_text(_LAUNCH.format(start=start))
    return rehearse(RehearsalRequest(["python", "launch.py"], gpus="2xH100-80G", timeout=300.0), None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("start", "launcher"),
    [
        ("subprocess.run(['torchrun', f'--nproc_per_node={count}', 'train.py'], check=True)", "torchrun"),
        pytest.param(
            "os.system(f'NCCL_DEBUG=INFO torchrun --nproc_per_node={count} train.py && echo done')", "torchrun",
            marks=pytest.mark.very_slow,
        ),
        pytest.param(
            "os.execvp('torchrun', ['torchrun', f'--nproc_per_node={count}', 'train.py'])", "torchrun",
            marks=pytest.mark.very_slow,
        ),
        pytest.param(
            "subprocess.check_call([sys.executable, '-m', 'deepspeed.launcher.runner', 'train.py'])", "deepspeed",
            marks=pytest.mark.very_slow,
        ),
    ],
)  # fmt: skip
def test_the_command_that_starts_the_training_is_rehearsed(folder: Path, start: str, launcher: str) -> None:
    record = rehearsed(folder, start)
    assert (record.launcher, record.world_size) == (launcher, 2)
    assert record.ranks[0].steps == 2
    assert rehearsal_report(record).verdict is Verdict.GO
    assert any(note.startswith("the program starts the training by a command") for note, _ in record.notes)


def test_of_processes_of_one_program_the_first_is_rehearsed(folder: Path) -> None:
    start = (
        "all = [subprocess.Popen([sys.executable, 'train.py', f'--rank={rank}', f'--world={count}'])"
        " for rank in range(count)]\nfor one in all:\n    one.wait()"
    )
    record = rehearsed(folder, start)
    assert record.ranks[0].steps == 2
    assert record.world_size == 2
    assert rehearsal_report(record).verdict is Verdict.GO


def test_a_program_that_trains_itself_is_no_launcher(folder: Path) -> None:
    start = "subprocess.run([sys.executable, 'make_config.py']); torch.ones(4, device='cuda')"
    record = rehearsed(folder, start)
    assert (record.launcher, record.world_size) == ("python", 1)
