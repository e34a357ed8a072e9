"""What really happens to a program on several ranks: real processes, gloo, DeepSpeed's CPU accelerator.

    python truth.py FOLDER[:RANKS]...

A line of JSON for each folder: how each of its ranks ended ("0" well, "1" raised, "hung" still running when its time
was over). The libraries are imported once, and each rank is forked from there.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

COLLECTIVE_SECONDS = 10
"""What a rank waits for the others in one collective before it gives up."""
PROGRAM_SECONDS = 120
GRACE_SECONDS = 2 * COLLECTIVE_SECONDS
"""What the others get once one rank has failed: they would wait for it until the collective's own time is over."""


def preload() -> None:
    """Import what the programs import, and have every process group give up soon."""
    os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
    import accelerate  # noqa: F401
    import deepspeed.runtime.zero.muon.muon_optimizer  # the longest: it imports torch.s compiler
    import deepspeed.runtime.zero.stage3
    import deepspeed.runtime.zero.stage_1_and_2  # noqa: F401
    import torch.distributed.distributed_c10d as c10d
    import transformers  # noqa: F401
    from transformers import LlamaForCausalLM, Trainer  # noqa: F401

    original = c10d.init_process_group

    def init_process_group(*args: Any, **kwargs: Any) -> None:
        kwargs["timeout"] = timedelta(seconds=COLLECTIVE_SECONDS)
        original(*args, **kwargs)

    c10d.init_process_group = init_process_group
    sys.modules["torch.distributed"].init_process_group = init_process_group  # type: ignore[attr-defined]
    c10d._get_default_timeout = lambda backend: timedelta(seconds=COLLECTIVE_SECONDS)


def _rank(rank: int, ranks: int, port: int, folder: Path, log: Path) -> None:
    """A forked child: becomes the rank, and never returns."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )  # fmt: skip
    os.chdir(folder)
    sys.argv = ["train.py"]
    status = 0
    try:
        runpy.run_path("train.py", run_name="__main__")
    except SystemExit as end:
        status = int(bool(end.code))
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(folder: Path, ranks: int) -> dict[str, Any]:
    """Run one program for real; call :func:`preload` first."""
    ended: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, folder.name)
        shutil.copytree(folder, copy)
        logs = [Path(scratch, f"rank-{rank}.log") for rank in range(ranks)]
        port = _free_port()
        started = time.monotonic()
        running: dict[int, int] = {}
        for rank in range(ranks):
            child = os.fork()
            if not child:
                _rank(rank, ranks, port, copy, logs[rank])
            running[child] = rank
        deadline = started + PROGRAM_SECONDS
        while running and time.monotonic() < deadline:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                time.sleep(0.05)
                continue
            code = os.waitstatus_to_exitcode(status)
            ended[running.pop(child)] = str(code)
            if code:
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        for child, rank in running.items():
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            ended[rank] = "hung"
        tails = {rank: log.read_text(errors="replace")[-3000:] for rank, log in enumerate(logs)}
    return {
        "program": f"{folder.parent.name}/{folder.name}",
        "ended": dict(sorted(ended.items())),
        "seconds": round(time.monotonic() - started, 1),
        "output": tails,
    }


def main() -> None:
    preload()
    for argument in sys.argv[1:]:
        folder, _, ranks = argument.partition(":")
        print(json.dumps(run(Path(folder).resolve(), int(ranks or 2))), flush=True)


if __name__ == "__main__":
    main()
