"""Programs that start their own processes: by torch.multiprocessing.spawn, and by other ways."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import UserError, Verdict
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse

_PROGRAM = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def main(rank, world, width):
    {begin}
    dist.init_process_group("nccl", "tcp://127.0.0.1:29511", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(width, 8).cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.randn(4, width, device="cuda")).sum().backward()
        optimizer.step()
    {end}

def by_environment(width):
    main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), width)

if __name__ == "__main__":
    world = torch.cuda.device_count()
    {start}
    open("after.txt", "w").close()
"""
_SPAWN = "mp.spawn(main, args=(world, 16), nprocs=world)"

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def rehearsed(
    folder: Path, *, start: str = _SPAWN, begin: str = "pass", end: str = "pass", ranks: str = "0", gpus: int = 2
) -> RehearsalRecord:
    """The record of a program that starts its processes so."""
    (folder / "train.py").write_text(_PROGRAM.format(start=start, begin=begin, end=end))
    request = RehearsalRequest(["python", "train.py"], gpus=f"{gpus}xH100-80G", ranks=ranks, timeout=300.0)
    record = rehearse(request, None)
    assert [path.name for path in folder.iterdir()] == ["train.py"]
    return record


_PROCESSES = "for rank in range(world): mp.Process(target=main, args=(rank, world, 16)).start()"


def test_processes_of_a_loop_are_ranks(folder: Path) -> None:
    record = rehearsed(folder, start=_PROCESSES, ranks="all")
    assert rehearsal_report(record).verdict is Verdict.GO
    assert (record.launcher, record.world_size, record.nodes) == ("multiprocessing.Process: main", 2, 1)
    assert [(rank.rank, rank.steps) for rank in record.ranks] == [(0, 2), (1, 2)]


def test_processes_that_use_no_accelerator_are_no_ranks(folder: Path) -> None:
    start = "[mp.Process(target=print, args=(rank,)).start() for rank in range(2)]; main(0, 1, 16)"
    record = rehearsed(folder, start=start)
    assert rehearsal_report(record).verdict is Verdict.GO
    assert record.world_size == 1


@pytest.mark.parametrize(
    "start",
    [
        _SPAWN,
        pytest.param("mp.spawn(main, (world, 16), world, join=False).join()", marks=pytest.mark.very_slow),
        pytest.param("mp.start_processes(main, (world, 16), world, start_method='fork')", marks=pytest.mark.very_slow),
    ],
)
def test_each_process_is_a_rank(folder: Path, start: str) -> None:
    record = rehearsed(folder, start=start, ranks="all")
    assert rehearsal_report(record).verdict is Verdict.GO
    assert (record.launcher, record.world_size, record.nodes) == ("torch.multiprocessing.spawn", 2, 1)
    assert [(rank.rank, rank.device, rank.steps) for rank in record.ranks] == [(0, "cuda:0", 2), (1, "cuda:1", 2)]
    assert record.notes[0][0].startswith("the program starts 2 process(es) itself")


@pytest.mark.very_slow
def test_accelerates_notebook_launcher_is_torchruns_agent_with_a_function(folder: Path) -> None:
    start = "import accelerate; accelerate.notebook_launcher(by_environment, (16,), num_processes=world)"
    begin = "assert (os.environ['LOCAL_RANK'], os.environ['WORLD_SIZE']) == (str(rank), str(world))"
    record = rehearsed(folder, start=start, begin=begin, ranks="all")
    assert rehearsal_report(record).verdict is Verdict.GO
    assert [(rank.device, rank.steps) for rank in record.ranks] == [("cuda:0", 2), ("cuda:1", 2)]


@pytest.mark.very_slow
def test_a_rank_that_the_command_alone_does_not_have(folder: Path) -> None:
    record = rehearsed(folder, ranks="3", gpus=4)
    assert [(rank.rank, rank.device) for rank in record.ranks] == [(3, "cuda:3")]
    with pytest.raises(UserError, match="the command starts 4 process"):
        rehearsed(folder, ranks="4", gpus=4)


def test_a_rank_that_there_is_not_after_all(folder: Path) -> None:
    with pytest.raises(UserError, match="the command starts 1 process"):
        rehearsed(folder, start="pass  # no spawn today", ranks="1")


def test_what_the_real_cuda_refuses_is_no_verdict(folder: Path) -> None:
    said = "CUDA error: CUDA driver version is insufficient for CUDA runtime version"
    report = rehearsal_report(rehearsed(folder, begin=f"raise RuntimeError({said!r})"))
    assert report.verdict is Verdict.CANNOT_TELL
    assert not report.findings


@pytest.mark.slow
def test_ranks_that_part(folder: Path) -> None:
    record = rehearsed(folder, ranks="all", end="rank == 0 and dist.barrier()")
    assert record.divergence is not None
    assert rehearsal_report(record).verdict is Verdict.NO_GO


def test_what_a_process_raises_is_the_ranks_own(folder: Path) -> None:
    record = rehearsed(folder, begin="os.environ['MODEL_FOLDER']")
    report = rehearsal_report(record)
    assert report.verdict is Verdict.NO_GO
    failure = record.ranks[0].failure
    assert failure is not None
    assert (failure.type, failure.message) == ("KeyError", "'MODEL_FOLDER'")


@pytest.mark.slow
def test_what_cannot_be_sent_to_a_process_is_told_as_python_tells_it(folder: Path) -> None:
    record = rehearsed(folder, start="mp.spawn(lambda rank: main(rank, 2, 16), nprocs=2)")
    failure = record.ranks[0].failure
    assert failure is not None
    real = subprocess.run(
        [sys.executable, "train.py"], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    without_address = re.compile(" at 0x[0-9a-f]+")
    assert without_address.sub("", real.stderr).splitlines()[-1] == without_address.sub(
        "", f"{failure.type}: {failure.message}"
    )
    assert rehearsal_report(record).verdict is Verdict.NO_GO


@pytest.mark.slow
def test_processes_started_in_another_way_are_no_verdict(folder: Path) -> None:
    start = (
        "import multiprocessing; context = multiprocessing.get_context('spawn'); "
        "p = context.Process(target=main, args=(0, 1, 16)); p.start(); p.join(); assert p.exitcode == 0"
    )
    record = rehearsed(folder, start=start)
    report = rehearsal_report(record)
    assert report.verdict is Verdict.CANNOT_TELL
    (told,) = record.ranks[0].unsupported
    assert told.what == "a process that the program starts"
    assert told.where.endswith("train.py:9")


_LAUNCHER = """
import os
import subprocess
import sys

class _SubprocessScriptLauncher:
    num_nodes = 1

    def __init__(self, num_processes):
        self.num_processes = num_processes

    def launch(self, function):
        if "LOCAL_RANK" not in os.environ:
            self._call_children_scripts()
        return function(int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"]), 16)

    def _call_children_scripts(self):
        os.environ.update(LOCAL_RANK="0", WORLD_SIZE=str(self.num_processes))
        for rank in range(1, self.num_processes):
            subprocess.Popen([sys.executable, sys.argv[0]], env={**os.environ, "LOCAL_RANK": str(rank)})
"""
"""What Lightning does for `devices=4`, at the place where it does it."""


@pytest.mark.parametrize("package", ["lightning/fabric", "pytorch_lightning"])
def test_lightning_starts_the_program_again_for_each_rank(folder: Path, package: str) -> None:
    place = folder / package / "strategies" / "launchers"
    place.mkdir(parents=True)
    (place / "subprocess_script.py").write_text(_LAUNCHER)
    module = f"{package.replace('/', '.')}.strategies.launchers.subprocess_script"
    start = f"from {module} import _SubprocessScriptLauncher\n    print('STARTED', os.environ.get('LOCAL_RANK'))\n"
    start += "    _SubprocessScriptLauncher(world).launch(main)"
    (folder / "train.py").write_text(_PROGRAM.format(start=start, begin="pass", end="pass"))
    record = rehearse(RehearsalRequest(["python", "train.py"], gpus="2xH100-80G", ranks="all", timeout=300.0), None)
    report = rehearsal_report(record)
    assert report.verdict is Verdict.GO
    assert (record.launcher, record.world_size, record.nodes) == ("Lightning", 2, 1)
    assert [(rank.rank, rank.device, rank.steps) for rank in record.ranks] == [(0, "cuda:0", 2), (1, "cuda:1", 2)]
    assert record.notes[0][0] == "Lightning starts the program again for each further GPU: 2 rank(s)"
