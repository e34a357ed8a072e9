"""Many rehearsals for the price of one: workers are forked from processes that have imported the stack already.

A server for each rank enters a session as a worker does, and imports DeepSpeed and transformers within it. In place
of a worker, a client is started that sends the plan there; the server's fork becomes the rank.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from gonogo.virtual.protocol.plan import EXCHANGE_DESCRIPTOR

_IMPORTED_ONCE = (
    "deepspeed.runtime.zero.stage3", "deepspeed.runtime.zero.stage_1_and_2", "deepspeed.runtime.bf16_optimizer",
    "accelerate.utils.deepspeed", "transformers.trainer", "transformers.generation",
    "transformers.models.llama.modeling_llama", "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.opt.modeling_opt",
)  # fmt: skip
_CLIENT = """
import json, os, signal, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
try:
    os.fstat(197)
    handed = [1, 197]
except OSError:
    handed = [1]
socket.send_fds(line, [b"."], handed)
line.sendall(json.dumps([sys.argv[2], os.getcwd(), dict(os.environ)]).encode())
line.shutdown(socket.SHUT_WR)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: os.kill(child, number))
child = int(line.recv(16).decode())
sys.exit(int(line.recv(16).decode() or 70))
"""


@contextmanager
def forked_workers(folder: Path, ranks: int, accelerator: str) -> Iterator[None]:
    """Within it, rehearsals of this many ranks on this accelerator, in this process, have their workers forked."""
    from gonogo.rehearse import run
    from gonogo.rehearse.workers import workers

    servers = []
    for rank in range(ranks):
        own = folder / f"server-{rank}"
        own.mkdir()
        command = [sys.executable, __file__, str(rank), str(ranks), accelerator, str(own)]
        servers.append(subprocess.Popen(command, env=_environment(rank, ranks, own), stdin=subprocess.DEVNULL))
    resolve = run.resolve
    resolved: dict[tuple[str, ...], Any] = {}

    def client(python: str, module: str, *arguments: str, dies_with_parent: bool = False) -> list[str]:
        rank = json.loads(Path(arguments[0]).read_bytes())["rank"]
        return [python, "-S", "-c", _CLIENT, str(folder / f"server-{rank}" / "line"), *arguments]

    def resolve_once(command: list[str], situation: Any) -> Any:
        """The launcher's own code says the same of the same command, in whichever folder."""
        known = resolved.get(tuple(command))
        if known is None:
            known = resolved[tuple(command)] = resolve(command, situation)
        return replace(known, launch=msgspec.structs.replace(known.launch, cwd=situation.cwd))

    try:
        _wait_for_all([folder / f"server-{rank}" / "line" for rank in range(ranks)], servers)
        with (
            mock.patch.multiple(workers, python_module_command=client, _fork_server_for=lambda _: nullcontext()),
            mock.patch.object(run, "resolve", resolve_once),
            mock.patch(
                "gonogo.confinement.confinement._means_to_try", return_value=("none",)
            ),  # the servers are outside
        ):
            yield
    finally:
        for server in servers:
            server.kill()
            server.wait()


def _environment(rank: int, ranks: int, own: Path) -> dict[str, str]:
    from gonogo.rehearse.launch.launch import LaunchedProcess, ResolvedLaunch
    from gonogo.rehearse.launch.worker_environment import worker_environment

    variables = {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    }  # fmt: skip
    process = LaunchedProcess(
        rank=rank, local_rank=rank, world_size=ranks, local_world_size=ranks, node=0, arguments=(),
        environment=variables,
    )  # fmt: skip
    launch = ResolvedLaunch(
        launcher="torchrun", program_kind="script", program="train.py", nodes=1, processes=(process,),
        environment=dict(os.environ), cwd=os.getcwd(),
    )  # fmt: skip
    return worker_environment(launch, process, packages=(), scratch=own / "caches")


def _wait_for_all(lines: Sequence[Path], servers: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + 600
    while not all(line.exists() for line in lines):
        assert time.monotonic() < deadline, "the servers did not come up"
        assert all(server.poll() is None for server in servers), "a server has died"
        time.sleep(0.1)


# -- the server -------------------------------------------------------------------------------------------------------


def _serve(rank: int, ranks: int, accelerator: str, own: Path) -> None:
    line = socket.socket(socket.AF_UNIX)
    line.bind(str(own / "line.partial"))
    line.listen()
    os.rename(own / "line.partial", own / "line")
    hidden = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
    os.environ.update(dict.fromkeys(hidden, ""))
    from gonogo.virtual.patching.garbage import raise_gc_thresholds

    raise_gc_thresholds()
    from gonogo.evidence.environment.hardware import find_accelerator
    from gonogo.virtual.protocol.plan import ExchangeAddress, WorkerPlan
    from gonogo.virtual.ranks import session as sessions

    for name in hidden:
        del os.environ[name]

    class LaterPeers(sessions.Peers):
        """Connects only when the fork knows where to."""

        def __init__(self, rank: int, where: Any, line: Any) -> None:
            self.over = True
            self.ranks = frozenset(where.ranks)  # which of them are rehearsed is asked before
            self.connect = lambda where: super(LaterPeers, self).__init__(rank, where, worker_connection())

    worker_connection = sessions.worker_connection
    sessions.Peers, sessions.worker_connection = LaterPeers, lambda: None  # type: ignore[misc, assignment, return-value]
    (own / "scratch").mkdir()
    plan = WorkerPlan(
        program_kind="script", program="train.py", arguments=(), rank=rank, local_rank=rank, world_size=ranks,
        local_world_size=ranks, accelerator=find_accelerator(accelerator), host_bytes=None, steps=2,
        scratch=str(own / "scratch"), record="", progress="", devices=ranks,
        exchange=ExchangeAddress("", "", tuple(range(ranks))),
    )  # fmt: skip
    session = sessions.Session(plan)
    with session:
        with session.mode:
            for name in _IMPORTED_ONCE:
                importlib.import_module(name)
        job = _next_job(line)  # one for each fork: what follows is done in it
        _rehearse(session, *job)


def _next_job(line: socket.socket) -> tuple[str, str, dict[str, str]]:
    """Serve clients for ever; comes back in each fork, with the plan's path, the folder and the environment."""
    while True:
        connection, _ = line.accept()
        _, (output, *more), _, _ = socket.recv_fds(connection, 1, 2)
        told = b"".join(iter(lambda: connection.recv(65536), b""))  # noqa: B023
        child = os.fork()
        if not child:
            os.dup2(output, 1)
            os.dup2(output, 2)
            for line_to_exchange in more:
                os.dup2(line_to_exchange, EXCHANGE_DESCRIPTOR)
            plan, cwd, environment = json.loads(told)
            return plan, cwd, environment
        for descriptor in (output, *more):
            os.close(descriptor)
        connection.sendall(str(child).encode())
        _, status = os.waitpid(child, 0)
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        connection.close()


def _rehearse(session: Any, plan_path: str, cwd: str, environment: dict[str, str]) -> None:
    """A fork: does what ``gonogo.virtual.ranks.worker`` does once it has entered the session, and never returns."""
    import torch

    from gonogo.virtual.protocol.plan import WorkerPlan
    from gonogo.virtual.ranks import worker

    status = 70
    try:
        os.setsid()
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        asked = msgspec.json.decode(Path(plan_path).read_bytes(), type=WorkerPlan)
        session.plan = plan = msgspec.structs.replace(asked, scratch=session.plan.scratch)
        session.started = time.monotonic()
        session.life.target = plan.steps
        session.peers.connect(plan.exchange)
        session.connect_peers(session.peers)
        random.seed(plan.rank)
        torch.manual_seed(0)
        worker._write_on_signal(session)
        stop = worker._report_progress(session)
        record = session.run()
        stop()
        session.__exit__()
        if record.failure is not None:
            print(record.failure.traceback, file=sys.stderr)
        worker.write_record(plan, record)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
