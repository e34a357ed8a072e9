"""Real ranks under guard, as `gonogo run` starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from operators_in_python import path_without_compiling
from ports import free_port

from gonogo.evidence.guarded.files import read_run
from gonogo.evidence.guarded.guarded_run import GuardedRun
from gonogo.guard.injection import GuardOptions, inject

HERE = Path(__file__).parent
ROOT = str(Path(__file__).resolve().parents[2])
"""The checkout, whose folder may be called gonogo as well."""


def environment(folder: Path, options: GuardOptions | None = None, **variables: str) -> dict[str, str]:
    """In which the guard starts, with what `gonogo run` finds on the machine taken away."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    return inject(folder, options or GuardOptions(), {**kept, "OMP_NUM_THREADS": "1", **variables})


def train(
    folder: Path, *command: str, ranks: int = 2, options: GuardOptions | None = None, **variables: str
) -> tuple[GuardedRun, subprocess.CompletedProcess[str]]:
    """Run a program on some ranks with torchrun: what the guard saw, and how it ended."""
    launch = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={ranks}"]
    launch += [f"--master_port={free_port()}", *command]
    # A mode that computes them otherwise would stand, with its operands, in the frames that the guard reads.
    plain = {"PYTHONPATH": path_without_compiling(), "KEEP_16_BIT_PRODUCTS": "1"}
    guarded = environment(folder, options, **{**plain, **variables})
    done = subprocess.run(launch, env=guarded, capture_output=True, text=True, timeout=500, check=False)
    return read_run(folder), done
