"""Several nodes: each launcher puts its ranks right, and programs without a Trainer run on the second one."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest
from confined import a_world

from gonogo.evidence.rehearsal.record import RankRecord, RehearsalRecord
from gonogo.finding import UserError, Verdict
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.launch.capture import capture_launch
from gonogo.rehearse.launch.launch import LaunchedProcess, LaunchMachine
from gonogo.rehearse.launch.launchers import find_launcher
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse

H100 = LaunchMachine("cuda", "NVIDIA H100 80GB HBM3", (9, 0), 85 << 30, 4)
_ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: {kind}
num_machines: 2
machine_rank: 0
main_process_ip: 10.0.0.1
main_process_port: 29501
num_processes: 8
mixed_precision: bf16
use_cpu: false
debug: false
"""
_ZERO2_OF_ACCELERATE = """
deepspeed_config:
  deepspeed_multinode_launcher: standard
  zero_stage: 2
  gradient_accumulation_steps: 1
"""
_LOOP = """
import argparse, os
import deepspeed, torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
deepspeed.add_config_arguments(parser)
arguments = parser.parse_args()
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
engine, optimizer, _, _ = deepspeed.initialize(args=arguments, model=model, model_parameters=model.parameters())
assert engine.local_rank == arguments.local_rank
for _ in range(4):
    inputs = torch.randn(2, 64, device=engine.device, dtype=torch.bfloat16)
    labels = torch.randint(8, (2,), device=engine.device)
    loss = torch.nn.functional.cross_entropy(engine(inputs).float(), labels)
    engine.backward(loss)
    engine.step()
engine.save_checkpoint("checkpoints")
"""
_WITH_ACCELERATOR = """
import torch
from accelerate import Accelerator

accelerator = Accelerator()
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
data = torch.utils.data.TensorDataset(torch.randn(64, 64), torch.randint(8, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=2)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
for inputs, labels in loader:
    loss = torch.nn.functional.cross_entropy(model(inputs).float(), labels)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
accelerator.save_state("state")
"""
_DEEPSPEED = {
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "LOCAL_RANK", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "hosts").write_text("node-0 slots=4\nnode-1 slots=4\n")
    (tmp_path / "loop.py").write_text(_LOOP)
    (tmp_path / "with_accelerator.py").write_text(_WITH_ACCELERATOR)
    (tmp_path / "ds.json").write_text(json.dumps(_DEEPSPEED))
    (tmp_path / "ddp.yaml").write_text(_ACCELERATE.format(kind="MULTI_GPU"))
    (tmp_path / "zero2.yaml").write_text(_ACCELERATE.format(kind="DEEPSPEED") + _ZERO2_OF_ACCELERATE)
    return tmp_path


def launched(folder: Path, line: str) -> tuple[LaunchedProcess, ...]:
    words = shlex.split(line)
    found = find_launcher(words)
    assert found is not None
    with a_world() as world:
        started = capture_launch(
            found[0],
            words,
            H100,
            environment={**os.environ, "HOME": str(folder)},
            cwd=str(folder),
            python=sys.executable,
            world=world,
            timeout=150,
        )
    assert started.nodes == 2
    return started.processes


def places(processes: tuple[LaunchedProcess, ...]) -> list[tuple[int, int, int]]:
    """Rank, node, local rank; and the environment has to say the same."""
    for process in processes:
        environment = process.environment
        assert (environment["RANK"], environment["LOCAL_RANK"]) == (str(process.rank), str(process.local_rank))
        assert environment["WORLD_SIZE"] == str(len(processes))
    return [(process.rank, process.node, process.local_rank) for process in processes]


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nnodes 2 --node_rank 0 --nproc_per_node 4 --master_addr 10.0.0.1 --master_port 29501 loop.py",
        "torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=static --rdzv-endpoint=10.0.0.1:29501 loop.py",
        "accelerate launch --config_file ddp.yaml loop.py",
        "accelerate launch --config_file zero2.yaml loop.py",
        "accelerate launch --multi_gpu --num_machines 2 --machine_rank 0 --num_processes 8 --mixed_precision no "
        "--main_process_ip 10.0.0.1 --main_process_port 29501 loop.py",
    ],
)
def test_eight_ranks_on_two_nodes(folder: Path, line: str) -> None:
    processes = launched(folder, line)
    assert places(processes) == [(rank, rank // 4, rank % 4) for rank in range(8)]
    last = processes[7].environment
    assert (last["MASTER_ADDR"], last["MASTER_PORT"]) == ("10.0.0.1", "29501")
    assert (last["LOCAL_WORLD_SIZE"], last["GROUP_RANK"]) == ("4", "1")


def test_deepspeed_includes_some_devices_of_each_host(folder: Path) -> None:
    processes = launched(folder, "deepspeed --hostfile hosts --include node-0:0,1@node-1:1,2,3 loop.py")
    # DeepSpeed's own local rank: the rank modulo the node's processes.
    assert places(processes) == [(0, 0, 0), (1, 0, 1), (2, 1, 2), (3, 1, 0), (4, 1, 1)]
    visible = [process.environment["CUDA_VISIBLE_DEVICES"] for process in processes]
    assert visible == ["0,1", "0,1", "1,2,3", "1,2,3", "1,2,3"]


def test_a_host_that_is_not_in_the_hostfile_is_named(folder: Path) -> None:
    with pytest.raises(UserError, match="node-7"):
        launched(folder, "deepspeed --hostfile hosts --include node-7:0 loop.py")


@pytest.mark.slow
def test_a_missing_yaml_of_accelerate_is_named(folder: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.yaml") as told:
        launched(folder, "accelerate launch --config_file absent.yaml loop.py")
    assert "\n" not in told.value.text.en


def rehearsed(line: str, rank: int) -> tuple[RehearsalRecord, RankRecord]:
    """The record of a GO through every phase, and its one rank."""
    request = RehearsalRequest(shlex.split(line), gpus="4xH100-80G", ranks=str(rank), timeout=800.0)
    record = rehearse(request, None)
    (only,) = record.ranks
    assert rehearsal_report(record).verdict is Verdict.GO, (only.failure, only.unsupported)
    assert {"forward", "backward", "step", "save"} <= set(only.phases)
    assert only.rank == rank
    return record, only


@pytest.mark.slow
def test_a_plain_deepspeed_loop_on_the_second_host(folder: Path) -> None:
    line = "deepspeed --hostfile hosts --include node-0:0,1@node-1:1,2 loop.py --deepspeed --deepspeed_config ds.json"
    record, rank = rehearsed(line, 3)
    assert (record.nodes, record.world_size, rank.device) == (2, 4, "cuda:1")
    assert not (folder / "checkpoints").exists()


@pytest.mark.very_slow
def test_accelerate_with_deepspeeds_yaml_on_the_second_machine(folder: Path) -> None:
    record, rank = rehearsed("accelerate launch --config_file zero2.yaml with_accelerator.py", 7)
    assert (record.nodes, record.world_size, rank.device) == (2, 8, "cuda:3")
    assert rank.deepspeed_config["zero_optimization"]["stage"] == 2


@pytest.mark.very_slow
def test_torchrun_on_the_second_node(folder: Path) -> None:
    line = (
        "torchrun --nnodes 2 --node_rank 0 --nproc_per_node 4 --master_addr 10.0.0.1 --master_port 29501 loop.py "
        "--deepspeed_config ds.json"
    )
    record, rank = rehearsed(line, 5)
    assert (record.nodes, record.world_size, rank.device) == (2, 8, "cuda:1")
