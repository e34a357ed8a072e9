"""The signal before a job's end: how it is told, and what programs do with it, for real and rehearsed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cells import STAGES, write_project
from test_disk_use import record_of_lives

from gonogo.evidence.rehearsal.checkpoints.disk_use import signalled_save
from gonogo.evidence.rehearsal.lives import FileEvent, JobSignal, RankRunState, RankSave, SignalOutcome
from gonogo.finding import UserError, Verdict
from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.job_signal import parse_job_signal, signal_of_job
from gonogo.rehearse.lives import check_save_options, parse_disk
from gonogo.rehearse.request import RehearsalRequest

HAZARD = "job-signal-saves-nothing"
USR1 = int(signal.SIGUSR1)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("USR1@120", ("SIGUSR1", 120)), ("sigterm@30", ("SIGTERM", 30)), ("TERM", ("SIGTERM", 60)),
        (f"{USR1}@90", ("SIGUSR1", 90)), ("R:USR1@90", ("SIGUSR1", 90)),
    ],
)  # fmt: skip
def test_a_signal_as_slurm_takes_it(given: str, found: tuple[str, int]) -> None:
    told = parse_job_signal(given)
    assert told is not None
    assert (told.name, told.seconds) == found


@pytest.mark.parametrize("given", ["", "USR9@1", "KILL@30", "B:USR1@30", "USR1@", "USR1@soon", "999@1"])
def test_what_is_no_signal_that_a_program_can_handle(given: str) -> None:
    with pytest.raises(UserError, match="--signal"):
        parse_job_signal(given)


def test_the_signal_of_a_job_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, line in (("a.sh", "#SBATCH --signal=USR1@90"), ("b.sh", "#SBATCH --signal=B:USR1@90"), ("c.sh", "")):
        Path(name).write_text(f"#!/bin/bash\n#SBATCH --nodes=1\n{line}\nsrun python train.py\n", encoding="utf-8")
    assert signal_of_job(["sbatch", "a.sh"]) == JobSignal("SIGUSR1", USR1, 90)
    assert signal_of_job(["bash", "b.sh"]) is None
    assert signal_of_job(["bash", "c.sh"]) is None
    assert signal_of_job(["python", "train.py"]) is None


def test_options_of_signals() -> None:
    assert parse_disk("2T@500M") == (2 << 40, 500 << 20)
    assert parse_disk("2T") == (2 << 40, None)
    for saves, kills in ((2, False), (1, True)):
        with pytest.raises(UserError, match="--signal"):
            check_save_options(STAGES, saves, None, "USR1@120", kill_between_writes=kills)
    with pytest.raises(UserError, match="--signal needs"):
        check_save_options((), 1, None, "USR1@120", kill_between_writes=False)


def test_the_worst_rank_counts_and_the_time_is_that_of_all_files() -> None:
    def life(told: SignalOutcome) -> RankRunState:
        path = f"/x/ck/{told.handling}"
        events = [FileEvent(1.0, path)]
        return RankRunState("first", file_events=events, saves=[RankSave(3, {path: 10**9})], signal=told)

    record = record_of_lives(life(SignalOutcome("handled", 2, 3)), life(SignalOutcome("ignored", 2)))
    assert signalled_save(record) is None
    record.signal, record.write_bytes_per_second = JobSignal("SIGUSR1", USR1, 30), 1e8
    told = signalled_save(record)
    assert told is not None
    assert (told.handling, told.saved_at, told.write_seconds) == ("ignored", 3, 20.0)


SAVES = {"flag": True, "stays": True, "timer": True, "none": False, "ignore": False, "forgets": False}


@pytest.mark.slow
@pytest.mark.parametrize("how", SAVES)
def test_what_the_loop_really_does(how: str, tmp_path: Path) -> None:
    """It trains on the CPU, and gets the signal."""
    write_project(tmp_path)
    program = "import runpy, sys, time, torch\n" \
        "step = torch.optim.AdamW.step\n" \
        "def slowly(*given):\n    print('step', flush=True); time.sleep(0.1); return step(*given)\n" \
        "torch.optim.AdamW.step = slowly\n" \
        f"sys.argv = ['signalled.py', {how!r}]; runpy.run_path('signalled.py', run_name='__main__')\n"  # fmt: skip
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        run.stdout.readline()
        run.send_signal(signal.SIGUSR1)
        try:
            run.wait(timeout=6)
        except subprocess.TimeoutExpired:
            run.kill()
    assert (tmp_path / "ck.pt").exists() is SAVES[how]


_ALSO_USR1 = "--signals-to-handle=SIGTERM,SIGUSR1"
SLOWLY = """
import runpy, time, torch
step = torch.optim.AdamW.step
def slowly(*given):
    print('step', flush=True); time.sleep(0.1); return step(*given)
torch.optim.AdamW.step = slowly
runpy.run_path('signalled.py', run_name='__main__')
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "sent", "saves"), [("--no-python", signal.SIGUSR1, False), (_ALSO_USR1, signal.SIGUSR1, True)]
)
def test_what_torchrun_really_passes_on(option: str, sent: signal.Signals, saves: bool, tmp_path: Path) -> None:
    """The scheduler's signal goes to torchrun: without a handler it ends, and its program hears nothing of it."""
    write_project(tmp_path)
    (tmp_path / "slowly.py").write_text(SLOWLY, encoding="utf-8")
    program = [sys.executable, "slowly.py"] if option == "--no-python" else ["slowly.py"]
    command = [sys.executable, "-m", "torch.distributed.run", option, "--nproc_per_node=1", *program, "flag"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        children = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True).stdout.split()
        run.send_signal(sent)
        run.wait(timeout=60)
        saved = (tmp_path / "ck.pt").exists()
        for child in children if not saved else ():  # as Slurm does at the step's end
            os.kill(int(child), signal.SIGKILL)
    assert saved is saves
    assert (run.returncode == -sent) is not saves


@pytest.mark.very_slow
@pytest.mark.parametrize(("option", "seconds", "saves"), [("", 60, False), (_ALSO_USR1, 60, True)])
def test_what_is_said_under_torchrun(
    option: str, seconds: int, saves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = ["torchrun", *([option] if option else []), "--nproc_per_node=1", "signalled.py", "flag"]
    record, report = rehearse_and_report(
        RehearsalRequest(command, gpus="1xH100-80G", as_installed=True, life=STAGES, signal=f"USR1@{seconds}")
    )
    assert (HAZARD in {one.hazard for one in report.findings}) is not saves
    assert report.verdict is (Verdict.GO if saves else Verdict.NO_GO)
    told = signalled_save(record.first_life or record)
    assert told is not None
    assert told.seconds == 30


@pytest.mark.very_slow
@pytest.mark.parametrize("how", SAVES)
def test_what_is_said_of_the_loop(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    _, report = rehearse_and_report(
        RehearsalRequest(
            ["python", "signalled.py", how], gpus="1xH100-80G", as_installed=True, life=STAGES, signal="USR1@60"
        )
    )
    assert (HAZARD in {one.hazard for one in report.findings}) is not SAVES[how]
    wanted = Verdict.GO if SAVES[how] else Verdict.CANNOT_TELL if how == "forgets" else Verdict.NO_GO
    assert report.verdict is wanted
