"""Programs run as a worker runs them: in a world of their own, on virtual accelerators."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from confined import runs_of

PRELUDE = """
import json, os, sys
import torch
from gonogo.evidence.environment.hardware import Accelerator
from gonogo.virtual.protocol.plan import WorkerPlan
from gonogo.virtual.ranks.session import Session
scratch = {scratch!r}
accelerator = Accelerator("H100-80G", "cuda", "NVIDIA H100 80GB HBM3", 79 << 30, (9, 0), 132, 1 << 30)
plan = WorkerPlan("script", "program.py", (), 0, 0, {world}, {world}, accelerator, 1 << 40, 2, scratch,
                  scratch + "/record.json", scratch + "/progress", prepared={prepared!r}, confinement={means!r})
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="{world}", LOCAL_WORLD_SIZE="{world}",
                  MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
session = Session(plan)
session.__enter__()
session.mode.__enter__()
def answer(**values):
    print("ANSWER " + json.dumps(values))
def described(tensors):
    return {{name: [list(t.shape), str(t.dtype), str(t.device)] for name, t in tensors}}
def peak_kib():  # of this process alone: ru_maxrss starts with what the process that started it held
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
def live(device):
    record = session.memory.device(torch.device(device))
    return record.live - record.bytes_by_category().get("workspace", 0)
"""


def run(
    folder: Path, program: str, world: int = 1, *, prepared: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in ``folder``, which it may change in a world. ``prepared``: where what was prepared lies."""
    runs = runs_of(folder)
    scratch = runs.shared / "worker"
    scratch.mkdir(exist_ok=True)
    code = PRELUDE.format(scratch=str(scratch), world=world, prepared=prepared, means=runs.means)
    environment = {
        **os.environ, "HF_HOME": str(folder / "hf"), "TRANSFORMERS_VERBOSITY": "error",
        "TMPDIR": str(runs.shared / "tmp"), **environment,
    }  # fmt: skip
    return subprocess.run(
        runs.world.command([sys.executable, "-c", code + textwrap.dedent(program)]),
        cwd=folder,
        env=runs.world.environment(environment),
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
