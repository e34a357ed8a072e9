"""Workers forked by a server that has imported torch: processes like those that are started by themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from processes import is_gone

from gonogo.confinement.confinement import Confinement
from gonogo.confinement.world import World
from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse
from gonogo.rehearse.workers import forking
from gonogo.rehearse.workers.forking import ConfinedProcess, ForkServer, WorkerStart, can_share_fork_server, fork_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")

# A server whose workers run the plan as Python, without torch.
SERVER = """
import socket, sys
from gonogo.virtual.ranks.fork_server import ForkRequestHandler
def main(plan):
    exec(open(plan).read())
    sys.stdout.flush()
    import os
    os._exit(0)
with socket.socket(fileno=int(sys.argv[1])) as parent:
    ForkRequestHandler(parent, main).serve()
"""


class ServerOf(ForkServer):
    """A server that is started by another command line, and forks whatever it is asked for."""

    def __init__(self, folder: Path, world: World, *command: str) -> None:
        super().__init__(sys.executable, {"PATH": os.environ["PATH"]}, str(folder), world)
        self.words = command

    def command(self, descriptor: str) -> list[str]:
        return [*self.words, descriptor]

    def can_start(self, start: WorkerStart) -> bool:
        return True


class Workers:
    """Starts workers that run a piece of Python."""

    def __init__(self, folder: Path, world: World) -> None:
        self.folder = folder
        self.world = world
        self.count = 0

    def start(self, program: str, **environment: str) -> WorkerStart:
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        plan = folder / "plan.py"
        plan.write_text(textwrap.dedent(program))
        environment = {"PATH": os.environ["PATH"], "RANK": str(self.count), **environment}
        return WorkerStart([sys.executable, str(plan)], str(plan), environment, str(folder), folder, self.world)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """One without namespaces: processes have the numbers in it that they have outside."""
    scratch = tmp_path / "confined"
    scratch.mkdir()
    with Confinement(scratch, unconfined=True).world() as world:
        yield world


@pytest.fixture
def workers(tmp_path: Path, world: World) -> Workers:
    return Workers(tmp_path, world)


@pytest.fixture
def server(tmp_path: Path, world: World) -> Any:
    server = ServerOf(tmp_path, world, sys.executable, "-c", SERVER)
    yield server
    server.close()


def test_a_worker_has_its_own_environment_folder_and_output(workers: Workers, server: ForkServer) -> None:
    program = """
    import os, subprocess, sys, tempfile
    print(os.environ["RANK"], os.environ["TMPDIR"], tempfile.gettempdir(), os.getcwd(), os.getsid(0) == os.getpid(),
          sys.argv[0], sorted(os.environ), file=sys.stderr)
    subprocess.run(["sh", "-c", "echo from below $RANK"])
    """
    starts = [workers.start(program, TMPDIR=str(workers.folder)) for _ in range(2)]
    processes = [ConfinedProcess(start, server) for start in starts]
    assert [process.wait(120) for process in processes] == [0, 0]
    for number, process, start in zip("12", processes, starts, strict=True):
        said = process.output.read().decode().splitlines()
        folder = str(workers.folder)
        names = str(sorted(start.environment))
        assert said[0] == f"{number} {folder} {folder} {start.cwd} True gonogo-worker {names}"
        assert said[1:] == [f"from below {number}"]


@pytest.mark.parametrize(
    ("program", "status"),
    [("raise SystemExit(3)", 70), ("import os; os._exit(5)", 5), ("import os; os.kill(os.getpid(), 9)", -9)],
)
def test_how_a_worker_ends_is_told(workers: Workers, server: ForkServer, program: str, status: int) -> None:
    process = ConfinedProcess(workers.start(program), server)
    assert process.wait(120) == process.poll() == process.returncode == status


def test_a_worker_and_what_it_started_are_ended_by_a_signal(workers: Workers, server: ForkServer) -> None:
    program = """
    import subprocess, time
    print(subprocess.Popen(["sleep", "300"]).pid, flush=True)
    time.sleep(300)
    """
    process = ConfinedProcess(workers.start(program), server)
    below = int(process.output.readline())
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    process.signal_group(signal.SIGKILL)
    assert process.wait(120) == -signal.SIGKILL
    assert is_gone(below)


def test_workers_end_with_their_server(workers: Workers, server: ForkServer) -> None:
    process = ConfinedProcess(workers.start("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(300)"), server)
    pid = int(process.output.readline())
    while not process.is_started:  # a worker may print before the server has said that it is there
        server.process_messages(120)
    server._popen.kill()
    assert process.wait(120) == -signal.SIGKILL
    assert is_gone(pid)


def test_without_a_server_a_worker_starts_by_itself(workers: Workers, tmp_path: Path, world: World) -> None:
    """A server that ends before it has forked (its Python has no torch, another thread runs in it) changes nothing."""
    server = ServerOf(tmp_path, world, sys.executable, "-c", "")
    processes = [
        ConfinedProcess(workers.start("print('here')"), server),
        ConfinedProcess(workers.start("print('here')"), None),
    ]
    for process in processes:
        assert process.wait(120) == 0
        assert process.output.read() == b"here\n"
    server.close()


def test_a_worker_that_is_not_forked_yet_can_be_ended(workers: Workers, tmp_path: Path, world: World) -> None:
    server = ServerOf(tmp_path, world, "sleep", "300")  # alone: a shell's child would keep the pipe open
    process = ConfinedProcess(workers.start("print('never')"), server)
    process.send_signal(signal.SIGINT)
    assert process.poll() is None
    process.signal_group(signal.SIGKILL)
    assert process.wait(120) == -signal.SIGKILL
    assert process.output.read() == b""
    server.close()


def test_only_what_a_rank_is_told_of_itself_may_differ(workers: Workers) -> None:
    alike = {"A": "1", "RANK": "0", "TMPDIR": "/a"}
    assert can_share_fork_server([alike, alike | {"RANK": "1", "LOCAL_RANK": "1", "TMPDIR": "/b"}])
    assert not can_share_fork_server([alike, alike | {"OMP_NUM_THREADS": "4"}])
    assert not can_share_fork_server([alike, {"RANK": "1"}])
    for environments in ([alike], [alike, {"RANK": "1"}]):
        with fork_server(sys.executable, environments, "/", workers.world) as server:
            assert server is None
    with fork_server(sys.executable, [alike, alike], "/", workers.world) as server:
        assert server is not None
        assert not server.request_fork(None, workers.start(""), 0)  # not what the server forks  # type: ignore[arg-type]


PROGRAM = """
import os, tempfile
import torch
import torch.distributed as dist
forked = b"fork_server" in open(f"/proc/{os.getppid()}/cmdline", "rb").read()
assert forked == (os.environ["FORKED"] == "1")
assert tempfile.gettempdir() == os.environ["TMPDIR"]
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(8, 256, device="cuda")).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
total = torch.tensor([rank + 1], device="cuda")
dist.all_reduce(total)
assert total.item() == 3
if rank == 1:
    raise ValueError("the second rank's own")
"""


@pytest.mark.slow
def test_a_forked_rank_has_the_record_of_one_that_imports_torch_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PROGRAM)

    def records(forked: bool) -> list[dict[str, Any]]:
        monkeypatch.setenv("FORKED", "1" if forked else "0")
        monkeypatch.setattr(
            forking, "can_share_fork_server", lambda environments: forked and can_share_fork_server(environments)
        )
        command = ["deepspeed", "--num_gpus", "2", "train.py"]
        ranks = rehearse(RehearsalRequest(command, ranks="all", timeout=280.0)).ranks
        return [plain(rank) for rank in ranks]

    def plain(rank: RankRecord) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(rank)
        for measured in ("seconds", "rss_bytes"):
            fields.pop(measured)
        return fields

    forked = records(forked=True)
    assert [rank["failure"] and rank["failure"]["message"] for rank in forked] == [None, "the second rank's own"]
    assert forked == records(forked=False)
