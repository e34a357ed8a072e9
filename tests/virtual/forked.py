"""Many programs rehearsed (or run for real) by one process each of a fork: the stack is imported once for all."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import msgspec
from confined import runs_of
from operators_in_python import path_without_compiling
from ports import free_port
from virtual.worlds import COUNTED, MASTER

from gonogo.confinement.world import World
from gonogo.evidence.environment.hardware import find_accelerator
from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.virtual.protocol.plan import WorkerPlan

STACK = "import torch, transformers, accelerate, peft, deepspeed, transformers.trainer, transformers.modeling_utils\n"

VIRTUAL = """
import contextlib, os, random, sys
from pathlib import Path
import msgspec
from gonogo.virtual.protocol.plan import WorkerPlan
from gonogo.virtual.ranks.session import Session
from gonogo.virtual.ranks.worker import write_record
plans = [msgspec.json.decode(Path(path).read_bytes(), type=WorkerPlan) for path in sys.argv[1:]]
session = Session(plans[0])
status = 0
with session:
    with session.mode:
        exec(os.environ["GONOGO_TEST_STACK"])
    for plan in plans:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            random.seed(0)
            output = os.open(plan.record + ".log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            session.plan = plan
            record = session.run()
            if record.failure is not None or record.unsupported:
                print(session.raw_traceback, file=sys.stderr)
            write_record(plan, record)
            sys.stdout.flush()
            os._exit(0)
        status |= os.waitpid(child, 0)[1]
os._exit(1 if status else 0)
"""

REAL = """
import os, sys
exec(os.environ["GONOGO_TEST_STACK"])
for path in sys.argv[1:]:
    child = os.fork()
    if not child:
        output = os.open(path + ".log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.argv = ["-", path]
        exec(os.environ["GONOGO_TEST_RUNNER"])
    os.waitpid(child, 0)
os._exit(0)
"""


def _start(code: str, arguments: list[str], folder: Path, confined: World | None = None, **environment: str) -> None:
    command = [sys.executable, "-c", code, *arguments]
    variables = {**os.environ, **MASTER, "OMP_NUM_THREADS": "1", "RANK": "0", "LOCAL_RANK": "0", **environment}
    done = subprocess.run(
        command if confined is None else confined.command(command),
        cwd=folder,
        env=variables if confined is None else confined.environment(variables),
        capture_output=True,
        text=True,
        timeout=1700,  # a busy machine: each program takes a second or two of a quiet one
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]


def rehearse_all(
    folder: Path, programs: Mapping[str, str], *, world: int = 8, steps: int = 2, stack: str = STACK,
    accelerator: str = "H100-80G", every: bool = False, counts_work: bool = False,
) -> dict[str, RankRecord]:  # fmt: skip
    """Rehearse the first rank of each program, all in one world; records by the programs' names."""
    plans = []
    shared = runs_of(folder).shared
    for name, program in programs.items():
        path = folder / f"{name}.py"
        path.write_text(textwrap.dedent(program))
        plan = WorkerPlan(
            program_kind="script", program=str(path), arguments=(), rank=0, local_rank=0, world_size=world,
            local_world_size=world, accelerator=find_accelerator(accelerator), host_bytes=None, steps=steps,
            scratch=str(shared), record=str(shared / f"{name}.json"), progress=str(shared / f"{name}.progress"),
            every=every, counts_work=counts_work,
        )  # fmt: skip
        plans.append(shared / f"{name}.plan")
        plans[-1].write_bytes(msgspec.json.encode(plan))
    _start(
        VIRTUAL,
        [str(plan) for plan in plans],
        folder,
        runs_of(folder).world,
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(world),
        MASTER_PORT="29543",
        GONOGO_TEST_STACK=stack,
        TMPDIR=str(shared / "tmp"),
    )
    return {name: msgspec.json.decode((shared / f"{name}.json").read_bytes(), type=RankRecord) for name in programs}


def output_of(folder: Path, name: str) -> str:
    """What a rehearsed program printed, and its traceback: for the message of a failed test."""
    return (runs_of(folder).shared / f"{name}.json.log").read_text()[-4000:]


def real_peaks(
    folder: Path, programs: Mapping[str, str], *, runner: str = COUNTED, stack: str = STACK
) -> dict[str, int]:
    """Run each program for real on the CPU, alone in its world; the most bytes that its tensors took at once."""
    paths = []
    for name, program in programs.items():
        paths.append(folder / f"{name}.real.py")
        paths[-1].write_text(textwrap.dedent(program))
    _start(
        REAL,
        [str(path) for path in paths],
        folder,
        DS_ACCELERATOR="cpu",
        CUDA_VISIBLE_DEVICES="",
        WORLD_SIZE="1",
        MASTER_PORT=str(free_port()),
        GONOGO_TEST_STACK=stack,
        GONOGO_TEST_RUNNER=runner,
        PYTHONPATH=path_without_compiling(),
    )
    peaks = {}
    for name, path in zip(programs, paths, strict=True):
        output = Path(f"{path}.log").read_text()
        peak = next((line for line in output.splitlines() if line.startswith("PEAK ")), None)
        assert peak is not None, f"{name}: {output[-4000:]}"
        peaks[name] = int(peak.split()[1])
    return peaks
