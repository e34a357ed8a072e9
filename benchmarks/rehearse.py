"""How long a rehearsal takes, and how much memory: a 72B model, ZeRO-3 with both offloads, 8 ranks, rank 0, 2 steps.

    python benchmarks/rehearse.py [--format json] [--layers 20,40,80] [--accumulation 1] [--every]

Prints seconds (start to end of the whole command), the processors' time in it, operators a second, and the worker's
peak resident memory: for the full model, and for the same at fewer layers, to show how the cost grows. Sequence 4096,
micro-batch 1, gradient checkpointing, bf16; the program is `examples/qwen_72b_zero3_offload/finetune.py`, unmodified,
with the DeepSpeed that is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "qwen_72b_zero3_offload"


def measure(layers: int, accumulation: int, every: bool) -> dict[str, float]:
    """Rehearse the example with so many layers. Raises SystemExit where the rehearsal is no GO."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "example"
        shutil.copytree(EXAMPLE, copy)
        config_file = copy / "model" / "config.json"
        config = json.loads(config_file.read_text())
        config["num_hidden_layers"] = layers
        for key in ("max_window_layers", "layer_types"):
            config.pop(key, None)
        config_file.write_text(json.dumps(config))
        launch = (copy / "launch.sh").read_text()
        changed = launch.replace("--gradient_accumulation_steps 8", f"--gradient_accumulation_steps {accumulation}")
        if changed == launch and accumulation != 8:
            raise SystemExit("launch.sh no longer sets --gradient_accumulation_steps 8: adapt this benchmark")
        (copy / "launch.sh").write_text(changed)
        options = [
            "--gpus",
            "8xH100-80G",
            "--host-memory",
            "2T",
            "--steps",
            "2",
            "--timeout",
            "1800",
            "--format",
            "json",
        ]
        options += ["--keep", str(Path(folder) / "kept"), *(["--every"] if every else [])]
        started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run(
            [sys.executable, "-m", "gonogo", "rehearse", *options, "--", "bash", "launch.sh"],
            cwd=copy, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        records = [json.loads(path.read_text()) for path in Path(folder, "kept").rglob("record.json")]
    if run.returncode != 0:
        raise SystemExit(f"{layers} layers: exit status {run.returncode}\n{run.stdout[:2000]}\n{run.stderr[-2000:]}")
    rehearsal = json.loads(run.stdout)["rehearsal"]
    rank = rehearsal["ranks"][0]
    return {
        "layers": layers,
        "parameters": rank["parameter_count"],
        "seconds": round(seconds, 1),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "operators": rank["operators"],
        "operators_per_second": round(rank["operators"] / seconds),
        "peak_rss_bytes": max(record["rss_bytes"] for record in records),
        "peak_allocated_bytes": rank["peak_allocated_bytes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--layers", default="20,40,80", help="the last one is the full model")
    parser.add_argument("--accumulation", type=int, default=1, help="micro-batches in a step (the example has 8)")
    parser.add_argument("--every", action="store_true", help="run each micro-batch, those too that repeat")
    options = parser.parse_args()
    cells = []
    for layers in [int(part) for part in options.layers.split(",")]:
        print(f"{layers} layers ...", file=sys.stderr, flush=True)
        cells.append(measure(layers, options.accumulation, options.every))
    full = cells[-1]
    answer = {
        "benchmark": "rehearse",
        "seconds": full["seconds"],
        "operators_per_second": full["operators_per_second"],
        "peak_rss_bytes": full["peak_rss_bytes"],
        "accumulation": options.accumulation,
        "every": options.every,
        "cells": cells,
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
    }
    if options.format == "json":
        print(json.dumps(answer, indent=1))
        return
    print(f"{'layers':>6} {'parameters':>15} {'seconds':>8} {'CPU':>6} {'operators':>10} {'operators/s':>11} "
          f"{'peak RSS':>9}")  # fmt: skip
    for cell in cells:
        rss = cell["peak_rss_bytes"] / 2**30
        print(f"{cell['layers']:>6} {cell['parameters']:>15,} {cell['seconds']:>8} {cell['cpu_seconds']:>6} "
              f"{cell['operators']:>10,} {cell['operators_per_second']:>11,} {rss:>5.2f} GiB")  # fmt: skip


if __name__ == "__main__":
    main()
