"""`gonogo run` as a process, on programs into which a failure is brought, and what its report says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
from guard.worlds import HERE
from ports import free_port

INJECTED = str(HERE / "injected.py")


class Launch(msgspec.Struct):
    """A `gonogo run` that has ended: its streams, its status, its report."""

    status: int
    stdout: str
    stderr: str
    folder: Path
    report: dict[str, Any]

    @property
    def first(self) -> dict[str, Any]:
        """The first finding."""
        assert self.report["findings"], self.stderr
        finding: dict[str, Any] = self.report["findings"][0]
        return finding

    @property
    def hazards(self) -> list[str]:
        """The hazards that were found, the first first."""
        return [finding["hazard"] for finding in self.report["findings"]]

    @property
    def run(self) -> dict[str, Any]:
        """The report's object of the run."""
        run: dict[str, Any] = self.report["guarded_run"]
        return run


def environment(**variables: str) -> dict[str, str]:
    """In which no launcher's variable is left of the tests' own surroundings, and one thread computes."""
    dropped = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_JOB_ID", "LC_ALL", "LANG")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", **variables}


def gonogo_run(folder: Path, *words: str) -> list[str]:
    """The command line of `gonogo run` with these options and this command."""
    return [sys.executable, "-m", "gonogo", "run", "--no-check", "--folder", str(folder), *words]


def torchrun(ranks: int, *program: str) -> list[str]:
    """The command line of torchrun on this machine alone."""
    launch = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={ranks}"]
    return [*launch, f"--master_port={free_port()}", *program]


def launched(
    folder: Path, *command: str, options: tuple[str, ...] = (), timeout: float = 240, **variables: str
) -> Launch:
    """Run a command under guard to its end."""
    done = subprocess.run(
        gonogo_run(folder, *options, "--", *command),
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    report = folder / "report.json"
    told = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    return Launch(done.returncode, done.stdout, done.stderr, folder, told)


def injected(
    folder: Path, what: str, engine: str = "ddp", ranks: int = 2, options: tuple[str, ...] = (), **variables: str
) -> Launch:
    """Run the training of ``injected.py`` under guard, with that failure in it."""
    return launched(folder, *torchrun(ranks, INJECTED, what, engine), options=options, **variables)
