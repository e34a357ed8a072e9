"""What it costs to rehearse one rank of each role of a mesh, `--ranks auto`, against rank 0 alone.

    git clone https://github.com/NVIDIA/Megatron-LM && python benchmarks/mesh_ranks.py Megatron-LM [--repeat 1]

The run is Megatron-LM's `pretrain_gpt.py` on 8 GPUs: tensor parallel 2, pipeline parallel 2, data parallel 2; 12
layers, four micro-batches, mock data, without Transformer Engine. Prints the ranks that were rehearsed, seconds from
start to end, the processors' time in it, and the ratios of each to rank 0 alone. The processors' time says more where
the machine does other work as well; with fewer cores than ranks, the seconds follow it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = [
    "torchrun", "--nproc_per_node", "8", "pretrain_gpt.py", "--transformer-impl", "local",
    "--use-mcore-models", "--num-layers", "12", "--hidden-size", "512", "--num-attention-heads", "8",
    "--seq-length", "1024", "--max-position-embeddings", "1024", "--tensor-model-parallel-size", "2",
    "--pipeline-model-parallel-size", "2", "--micro-batch-size", "4", "--global-batch-size", "32",
    "--train-iters", "50", "--lr", "1e-4", "--bf16", "--no-gradient-accumulation-fusion",
    "--no-masked-softmax-fusion", "--no-persist-layer-norm", "--mock-data", "--tokenizer-type",
    "NullTokenizer", "--vocab-size", "50256", "--split", "949,50,1", "--eval-iters", "2", "--eval-interval",
    "100", "--log-interval", "1",
]  # fmt: skip


def measure(project: Path, ranks: str) -> tuple[list[int], float, float]:
    """The ranks rehearsed, seconds, and the processors' seconds. Raises SystemExit where the rehearsal is no GO."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--gpus", "8xH100-80G", "--environment", "none", "--ranks", ranks, "--keep", folder]
        started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run(
            [sys.executable, "-m", "gonogo", "rehearse", *options, "--timeout", "3000", "--", *COMMAND],
            cwd=project, capture_output=True, text=True,
            env={**os.environ, "NO_COLOR": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        )  # fmt: skip
        seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        if run.returncode:
            raise SystemExit(f"--ranks {ranks}: exit status {run.returncode}\n{run.stdout}{run.stderr}")
        record = json.loads((Path(folder) / "rehearsal.json").read_text())
    processors = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [rank["rank"] for rank in record["ranks"]], seconds, processors


def main() -> None:
    """Measure both, alternately, and print the best of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", type=Path, help="a clone of Megatron-LM")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    best: dict[str, tuple[list[int], float, float]] = {}
    for _ in range(options.repeat):
        for ranks in ("0", "auto"):
            found = measure(options.project, ranks)
            best[ranks] = min(best.get(ranks, found), found, key=lambda one: one[2])
    _, alone, alone_processors = best["0"]
    print(f"{'--ranks':8} {'rehearsed':>14} {'seconds':>9} {'CPU s':>7} {'ratio':>6} {'CPU ratio':>10}")
    for ranks, (rehearsed, seconds, processors) in best.items():
        names = ", ".join(map(str, rehearsed))
        shares = f"{seconds / alone:6.2f} {processors / alone_processors:10.2f}"
        print(f"{ranks:8} {names:>14} {seconds:9.1f} {processors:7.1f} {shares}")


if __name__ == "__main__":
    main()
