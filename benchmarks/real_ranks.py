"""Real ranks of a program on this machine, over gloo where there is no GPU: what benchmarks compare rehearsals with."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def run_ranks(
    count: int,
    command: Callable[[int], list[str]],
    logs: Callable[[int], Path],
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    seconds: float = 600.0,
) -> None:
    """Run a rank's command for each rank, and wait for all; what they write goes to their logs.

    ``variables`` are added to this process's environment, beside those of torchrun. Raises TimeoutExpired.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks: list[subprocess.Popen[bytes]] = []
    deadline = time.monotonic() + seconds
    try:
        for rank in range(count):
            environment = {
                **os.environ, **(variables or {}), "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count),
                "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            }  # fmt: skip
            with open(logs(rank), "wb") as log:
                ranks.append(subprocess.Popen(command(rank), env=environment, cwd=folder, stdout=log, stderr=log))
        for process in ranks:
            process.wait(timeout=max(deadline - time.monotonic(), 1))
    finally:
        for process in ranks:
            process.kill()
            process.wait()
