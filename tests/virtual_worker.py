"""Programs run as a worker runs them: on virtual accelerators, their files, weights and network shown otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

PRELUDE = """
import json, os, sys
import torch
from gonogo.evidence.environment.hardware import Accelerator
from gonogo.virtual.ranks.plan import WorkerPlan
from gonogo.virtual.ranks.session import Session
from gonogo.virtual.sandbox.write_guard import guard_writes
scratch = {scratch!r}
accelerator = Accelerator("H100-80G", "cuda", "NVIDIA H100 80GB HBM3", 79 << 30, (9, 0), 132, 1 << 30)
plan = WorkerPlan("script", "program.py", (), 0, 0, {world}, {world}, accelerator, 1 << 40, 2, scratch,
                  scratch + "/record.json", scratch + "/progress", prepared={prepared!r})
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="{world}", LOCAL_WORLD_SIZE="{world}",
                  MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
session = Session(plan)
session.__enter__()
guarded = guard_writes([scratch])  # whatever the overlay does not see fails here
session.mode.__enter__()
def answer(**values):
    print("ANSWER " + json.dumps(values))
def described(tensors):
    return {{name: [list(t.shape), str(t.dtype), str(t.device)] for name, t in tensors}}
def peak_kib():  # of this process alone: ru_maxrss starts with what the process that started it held
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
def live(device):
    return session.memory.device(torch.device(device)).live
"""


def run(
    folder: Path, program: str, world: int = 1, *, prepared: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in ``folder``; its scratch folder lies beside it. ``prepared``: where what was prepared lies."""
    scratch = folder.parent / f"{folder.name}-scratch"
    scratch.mkdir(exist_ok=True)
    code = PRELUDE.format(scratch=str(scratch), world=world, prepared=prepared) + textwrap.dedent(program)
    environment = {**os.environ, "HF_HOME": str(folder / "hf"), "TRANSFORMERS_VERBOSITY": "error", **environment}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def answers(folder: Path, program: str, world: int = 1, *, prepared: str = "", **environment: str) -> dict[str, Any]:
    """Run a program that must succeed; what it gave to ``answer(...)``."""
    done = run(folder, program, world, prepared=prepared, **environment)
    assert done.returncode == 0, done.stderr[-6000:]
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("ANSWER "):
            found.update(json.loads(line.removeprefix("ANSWER ")))
    return found
