"""How long ``gonogo plan`` takes: 7B on 8 GPUs, 72B on 64, a mixture of 30B on 8 and 16, the first time and again.

    python benchmarks/plan.py [--format json] [--only CELL]

Seconds from the command's start to its end, and the processors' time in them. *Cold*: with an empty cache of
rehearsals; *cached*: the same command once more. Sequences of 4096, A100-80G, 1 TiB of host memory a node; the models
are Qwen2-7B, Qwen2-72B and Qwen3-30B-A3B (on H200 and H100-80G) by their published configurations. Of tasks: sequences
of 1536, H100-80G, the TRL that ``tests/frameworks`` pins. It needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from frameworks_installed import framework

HERE = Path(__file__).resolve().parent
_LONG = ["--seq-len", "4096"]
CELLS: dict[str, tuple[str, int, list[str]]] = {
    "7B": ("8xA100-80G", 1, _LONG),
    "72B": ("8xA100-80G", 8, _LONG),
    "30B-A3B": ("8xH200", 1, _LONG),
    "30B-A3B on 16": ("8xH100-80G", 2, _LONG),
    **{
        f"7B {task}": ("8xH100-80G", 1, ["--seq-len", "1536", "--task", task])
        for task in ("dpo", "kto", "rm", "grpo", "rloo")
    },
    "72B grpo": ("8xH100-80G", 4, ["--seq-len", "1536", "--task", "grpo"]),
}
"""A node's accelerators, nodes, and options."""
_SECONDS = 1800


def configuration(name: str) -> dict[str, Any]:
    """The model's published configuration."""
    published = {"7B": "Qwen2-7B", "30B": "Qwen3-30B-A3B"}
    for size, of_model in published.items():
        if name.startswith(size):
            models = json.loads((HERE / "published_models.json").read_text(encoding="utf-8"))
            return dict(next(model["config"] for model in models if model["name"] == of_model))
    return dict(json.loads((HERE.parent / "examples/qwen_72b_zero3_offload/model/config.json").read_text()))


def planned(model: Path, name: str, cache: Path) -> dict[str, Any]:
    """One plan: its time, and the best that it found. Raises SystemExit where it fails."""
    gpus, nodes, options = CELLS[name]
    command = [sys.executable, "-m", "gonogo", "plan", str(model), "--gpus", gpus, "--nodes", str(nodes),
               "--host-memory", "1T", *options, "--format", "json"]  # fmt: skip
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    if "--task" in options:
        environment["PYTHONPATH"] = str(framework("trl"))
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, env=environment)
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"{name}: exit status {done.returncode}\n{done.stderr[-3000:]}")
    report = json.loads(done.stdout)
    best = (report["plan"]["fitting"] or [None])[0]
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "verdict": report["verdict"],
        "best": best and best["strategy"],
        "micro_batch": best and best["micro_batch"],
        "fitting": len(report["plan"]["fitting"]),
    }


def measured(name: str) -> dict[str, Any]:
    """A model's plan, cold and cached."""
    with tempfile.TemporaryDirectory() as folder:
        model, cache = Path(folder, f"Qwen2-{name.partition(' ')[0]}"), Path(folder, "cache")
        model.mkdir()
        (model / "config.json").write_text(json.dumps(configuration(name)), encoding="utf-8")
        return {"model": name, "cold": planned(model, name, cache), "cached": planned(model, name, cache)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--only", choices=tuple(CELLS))
    options = parser.parse_args()
    cells = [measured(name) for name in CELLS if options.only in (None, name)]
    if options.format == "json":
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
        print(json.dumps({"benchmark": "plan", "cells": cells, "machine": machine}, indent=1))
        return
    print(f"{'what':<9} {'GPUs':>5} {'cold s':>8} {'CPU s':>7} {'cached s':>9}  best")
    for cell in cells:
        gpus, nodes, _ = CELLS[cell["model"]]
        count = int(gpus.partition("x")[0]) * nodes
        cold, cached = cell["cold"], cell["cached"]
        print(f"{cell['model']:<9} {count:>5} {cold['seconds']:>8} {cold['cpu_seconds']:>7} {cached['seconds']:>9}  "
              f"{cold['best']}, micro-batch {cold['micro_batch']} ({cold['fitting']} fit)")  # fmt: skip


if __name__ == "__main__":
    main()
