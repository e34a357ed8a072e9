"""What it costs to rehearse one rank of each role of a mesh, `--ranks auto`, against rank 0 alone.

    python benchmarks/mesh_ranks.py [--repeat 1]
    git clone https://github.com/NVIDIA/Megatron-LM && python benchmarks/mesh_ranks.py --megatron Megatron-LM

The program is the one below, of torch alone: 24 blocks in two pipeline stages, each block divided between two
tensor-parallel ranks, two data-parallel ranks, eight micro-batches a step. With `--megatron` it is Megatron-LM's
`pretrain_gpt.py` with the same mesh, 12 layers, mock data and no Transformer Engine. Prints the ranks that were
rehearsed, seconds from start to end, the processors' time in it, the most memory that its processes held together,
and the ratios of each to rank 0 alone. The processors' time says more where the machine does other work as well; with
fewer cores than ranks, the seconds follow it. The first run fills gonogo's own caches: with ``--repeat 2`` the better
of two counts.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_BETWEEN_SAMPLES = 0.5

PROGRAM = """\
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def block():
    layers = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).to(device)
    return parallelize_module(layers, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})


stage = torch.nn.Sequential(*(block() for _ in range(12)))
for layer in stage:
    fully_shard(layer, mesh=mesh["dp"])
place = mesh["pp"].get_local_rank()
# Told, since rank 0 alone can't be told by another stage: also which of them have gradients, which torch 2.13 takes
# from these.
takes = torch.empty(8, 1024, device="meta", requires_grad=place > 0)
gives = torch.empty(8, 1024, device="meta", requires_grad=True)
schedule = Schedule1F1B(
    PipelineStage(stage, place, 2, device, input_args=takes, output_args=gives, group=mesh["pp"].get_group()),
    n_microbatches=8, loss_fn=torch.nn.functional.mse_loss,
)
optimizer = torch.optim.AdamW(stage.parameters())
for _ in range(2):
    if place == 0:
        schedule.step(torch.randn(64, 1024, device=device))
    else:
        schedule.step(target=torch.zeros(64, 1024, device=device))
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
MEGATRON = [
    "torchrun", "--nproc_per_node", "8", "pretrain_gpt.py", "--transformer-impl", "local",
    "--use-mcore-models", "--num-layers", "12", "--hidden-size", "512", "--num-attention-heads", "8",
    "--seq-length", "1024", "--max-position-embeddings", "1024", "--tensor-model-parallel-size", "2",
    "--pipeline-model-parallel-size", "2", "--micro-batch-size", "4", "--global-batch-size", "32",
    "--train-iters", "50", "--lr", "1e-4", "--bf16", "--no-gradient-accumulation-fusion",
    "--no-masked-softmax-fusion", "--no-persist-layer-norm", "--mock-data", "--tokenizer-type",
    "NullTokenizer", "--vocab-size", "50256", "--split", "949,50,1", "--eval-iters", "2", "--eval-interval",
    "100", "--log-interval", "1",
]  # fmt: skip


class Measured(NamedTuple):
    """What one rehearsal took."""

    ranks: list[int]
    seconds: float
    processors: float
    memory: int


def measure(project: Path, command: list[str], ranks: str) -> Measured:
    """Rehearse. Raises SystemExit where the rehearsal is no GO."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--gpus", "8xH100-80G", "--environment", "none", "--ranks", ranks, "--keep", folder]
        started = time.monotonic()
        run = subprocess.Popen(
            [sys.executable, "-m", "gonogo", "rehearse", *options, "--timeout", "20000", "--", *command],
            cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "NO_COLOR": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        )  # fmt: skip
        told: list[str] = []
        reader = threading.Thread(target=lambda: told.append(run.stdout.read() if run.stdout else ""))
        reader.start()
        most, spent = 0, {}
        while run.poll() is None:
            processes = psutil.Process().children(recursive=True)
            most = max(most, sum(map(_held, processes)))
            spent |= {process: times for process in processes if (times := _spent(process))}
            time.sleep(_BETWEEN_SAMPLES)
        seconds = time.monotonic() - started
        reader.join()
        _reap()
        if run.returncode:
            raise SystemExit(f"--ranks {ranks}: exit status {run.returncode}\n{''.join(told)}")
        record = json.loads((Path(folder) / "rehearsal.json").read_text())
    return Measured([rank["rank"] for rank in record["ranks"]], seconds, sum(spent.values()), most)


def _held(process: psutil.Process) -> int:
    """A process's memory, with its part of what it shares with others."""
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0  # it has ended


def _spent(process: psutil.Process) -> float:
    """The processors' time of a process until now: nobody waits for the ranks, whose namespace ends with them."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _adopt() -> None:
    """Make this process the parent of those whose own ends before them, so that they are found among its children."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0)[0]:
            pass


def main() -> None:
    """Measure both, alternately, and print the best of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megatron", type=Path, metavar="FOLDER", help="a clone of Megatron-LM")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    _adopt()
    best: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(PROGRAM, encoding="utf-8")
        command = MEGATRON if options.megatron else ["torchrun", "--nproc_per_node", "8", "train.py"]
        for _ in range(options.repeat):
            for ranks in ("0", "auto"):
                found = measure(options.megatron or Path(folder), command, ranks)
                best[ranks] = min(best.get(ranks, found), found, key=lambda one: one.processors)
    alone = best["0"]
    print("| --ranks | rehearsed | seconds | CPU s | ratio | CPU ratio | memory, GiB | ratio |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for ranks, found in best.items():
        cells = [ranks, ", ".join(map(str, found.ranks)), f"{found.seconds:.1f}", f"{found.processors:.1f}"]
        cells += [f"{found.seconds / alone.seconds:.2f}", f"{found.processors / alone.processors:.2f}"]
        cells += [f"{found.memory / (1 << 30):.2f}", f"{found.memory / alone.memory:.2f}"]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
