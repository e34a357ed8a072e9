"""Where a run's saves go, and when: gonogo on disks, signals, /dev/shm and saves in the background, and the truth.

    python benchmarks/life_places.py [--really] [--only WORDS]

``--really`` runs the programs on the CPU with gloo and writes what came of them to ``tests/life/places.json``: in a
tmpfs of that size (which takes root), with the signal sent to the launcher as Slurm does, with a second for each file
that a thread opens. Without it they are rehearsed, and compared with that. Exits 1 where one is told wrongly.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS, TRUTH = ROOT / "tests" / "life" / "programs", ROOT / "tests" / "life" / "places.json"
_LIFE = "--life train,save,kill,resume"
_SLOW_THREADS = """
import os, sys, threading, time
def wait(event, args):
    if event == "open" and isinstance(args[0], str) and "ck" in args[0] and isinstance(args[2], int) and args[2] & 3:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(1)
sys.addaudithook(wait)
"""
_SLOW_STEPS = """
import runpy, time, torch
step = torch.optim.AdamW.step
def slowly(*given):
    print("step", flush=True); time.sleep(0.1); return step(*given)
torch.optim.AdamW.step = slowly
runpy.run_path("signalled.py", run_name="__main__")
"""
_ASYNC = "torchrun --nproc_per_node 2 async_saves.py"
_PASSES = "--signals-to-handle=SIGTERM,SIGUSR1"


@dataclass(frozen=True)
class Cell:
    """``hazard`` is what is found where the answer is bad; of /dev/shm, the bytes are compared."""

    name: str
    command: str
    options: str
    hazard: str = ""
    disk: str = ""

    @property
    def kind(self) -> str:
        """What it is about."""
        return self.name.split()[0]


CELLS = (
    *(Cell(f"background {how}", f"{_ASYNC} {how}", f"{_LIFE} --steps 7 --gpus 2xH100-80G", "async-save-not-awaited")
      for how in ("awaited", "ends", "destroys", "leaves", "overlaps", "thread", "daemon")),
    Cell("shm shared", f"{_ASYNC} shared", f"{_LIFE} --steps 7 --gpus 2xH100-80G"),
    *(Cell(f"disk {size}", "python files.py each atomic", f"{_LIFE} --saves 2 --disk {size} --gpus 1xH100-80G",
           "checkpoint-write-disk-full", size) for size in ("0.03M", "0.1M")),
    *(Cell(f"signal {' '.join(words)}", f"torchrun {' '.join(words[:-1])} --nproc_per_node 1 signalled.py {words[-1]}",
           f"{_LIFE} --signal USR1@60 --gpus 1xH100-80G", "job-signal-saves-nothing")
      for words in (("flag",), (_PASSES, "flag"), (_PASSES, "none"))),
)  # fmt: skip


@contextlib.contextmanager
def _folder(disk: str) -> Iterator[Path]:
    """A folder with the programs; with ``disk``, ``ck`` and its likes are written to a tmpfs with so much left."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        folder.mkdir()
        if disk:
            programs = sum(-(-one.stat().st_size // 4096) for one in PROGRAMS.glob("*.py")) + 4
            size = int(float(disk.removesuffix("M")) * 1024) + programs * 4
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(folder)], check=True)
        try:
            for one in PROGRAMS.glob("*.py"):
                shutil.copy(one, folder)
            yield folder
        finally:
            if disk:
                subprocess.run(["umount", "-l", str(folder)], check=True)


def really(cell: Cell) -> Any:
    """Whether it goes wrong; of /dev/shm, the most bytes."""
    with _folder(cell.disk) as folder:
        words = shlex.split(cell.command)
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        if cell.kind == "background":
            (folder / "sitecustomize.py").write_text(_SLOW_THREADS)
            environment["PYTHONPATH"] = str(folder)
        if cell.kind == "signal":
            (folder / "slowly.py").write_text(_SLOW_STEPS)
            words[words.index("signalled.py")] = "slowly.py"
        python = [sys.executable, *(["-m", "torch.distributed.run"] if words[0] == "torchrun" else []), *words[1:]]
        if cell.kind == "shm":  # one of its own
            python = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh", *python]
        with subprocess.Popen(
            python, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as run:  # fmt: skip
            assert run.stdout is not None
            if cell.kind == "signal":
                while "step" not in run.stdout.readline():
                    pass
                run.send_signal(signal.SIGUSR1)
                time.sleep(5)
            try:
                said = run.communicate(timeout=60)[0]
            except subprocess.TimeoutExpired:
                said = ""
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            if cell.kind == "shm":
                return max(int(found) for found in re.findall(r"shm (\d+)$", said, re.MULTILINE))
            if cell.kind == "disk":
                return "No space left" in said or "unexpected pos" in said or "iostream error" in said
            if cell.kind == "signal":
                return not (folder / "ck.pt").exists()
            return not _has_last_save(folder)


def _has_last_save(folder: Path) -> bool:
    import torch

    if (folder / "ck.pt").exists():
        return bool(torch.load(folder / "ck.pt")["step"] == 6)
    return (folder / "ck" / "6" / ".metadata").exists()


def said(cell: Cell) -> Any:
    """The same, as it is rehearsed."""
    with _folder("") as folder:
        words = [
            *shlex.split(cell.options),
            "--environment",
            "none",
            "--format",
            "json",
            "--",
            *shlex.split(cell.command),
        ]
        run = subprocess.run(
            [sys.executable, "-m", "gonogo", "rehearse", *words], cwd=folder, capture_output=True, text=True
        )
    if not run.stdout.startswith("{"):
        raise RuntimeError(f"{cell.name}: {run.stdout[-1000:]} {run.stderr[-1000:]}")
    report = json.loads(run.stdout)
    if cell.kind == "shm":
        return report["rehearsal"]["life"]["costs"]["shm_bytes"]
    return cell.hazard in {finding["hazard"] for finding in report["findings"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--really", action="store_true")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    truth = json.loads(TRUTH.read_text()) if TRUTH.exists() else {}
    wrong = 0
    for cell in (one for one in CELLS if given.only in one.name):
        if given.really:
            truth[cell.name] = really(cell)
            print(cell.name, truth[cell.name], flush=True)
            TRUTH.write_text(json.dumps(truth, indent=1, sort_keys=True) + "\n")
            continue
        if cell.name not in truth:
            print("no truth", cell.name)
            continue
        answer, known = said(cell), truth[cell.name]
        right = abs(answer - known) <= 0.03 * known if cell.kind == "shm" else answer is known
        wrong += not right
        print("right" if right else "WRONG", cell.name, answer, known, flush=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
