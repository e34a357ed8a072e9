"""Saves in the background: what programs that don't wait for them leave on disk, for real and rehearsed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cells import STAGES, write_project

from gonogo.finding import Severity, Verdict
from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.request import RehearsalRequest
from gonogo.virtual.life.background_saves import BackgroundSaves, ProgramLeft, ProgramMoment

HAZARD = "async-save-not-awaited"
SLOWLY = """
import os, sys, threading, time
def wait(event, args):
    # The first argument is a path of the checkpoint, opened to be written.
    if event == "open" and isinstance(args[0], str) and "ck" in args[0] and isinstance(args[2], int) and args[2] & 3:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(1)
sys.addaudithook(wait)
"""
# The saves of a run of six steps that are complete, where each file of a save in the background takes a second.
REALLY = {
    "awaited": {2, 4, 6}, "ends": {2, 4, 6}, "destroys": {2, 4}, "leaves": {2, 4}, "overlaps": set(), "rotates": {6},
    "thread": {6}, "daemon": {4},
}  # fmt: skip


@pytest.mark.very_slow
@pytest.mark.parametrize("how", REALLY)
def test_what_is_really_complete(how: str, tmp_path: Path) -> None:
    write_project(tmp_path)
    (tmp_path / "sitecustomize.py").write_text(SLOWLY, encoding="utf-8")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "async_saves.py", how]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    try:
        subprocess.run([sys.executable, *launch], cwd=tmp_path, env=environment, timeout=90, capture_output=True)
    except subprocess.TimeoutExpired:
        assert how == "overlaps"  # it hangs
    if how in ("thread", "daemon"):
        import torch

        complete = {torch.load(tmp_path / "ck.pt")["step"]}
    else:
        complete = {int(name.parent.name) for name in tmp_path.glob("ck/*/.metadata")}
    assert complete == REALLY[how]


SAID = {
    "awaited": None, "ends": None, "destroys": Severity.ERROR, "leaves": Severity.ERROR, "overlaps": Severity.WARNING,
    "thread": None, "daemon": Severity.ERROR,
}  # fmt: skip


@pytest.mark.very_slow
@pytest.mark.parametrize("how", SAID)
def test_what_is_said_of_it(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = ["torchrun", "--nproc_per_node=2", "async_saves.py", how]
    _, report = rehearse_and_report(
        RehearsalRequest(command, gpus="2xH100-80G", as_installed=True, life=STAGES, steps=7)
    )
    found = next((one for one in report.findings if one.hazard == HAZARD), None)
    assert (found.severity if found is not None else None) is SAID[how]
    assert report.verdict is (Verdict.CANNOT_TELL if SAID[how] is Severity.ERROR else Verdict.GO)
    assert found is None or "async_saves.py:" in found.cause.en


class Run:
    """A program with saves in the background, without a rehearsal around it."""

    def __init__(self) -> None:
        self.step = 1
        self.saves = BackgroundSaves(lambda: ProgramMoment("a.py:1", self.step, 0, (), {}), lambda: self.step)

    def ended(self, program: Callable[[], object]) -> list[tuple[int, str, str]]:
        undo = self.saves.install()
        try:
            with self.saves.until_the_end():
                program()
        except SystemExit:
            pass
        finally:
            undo()
        return [(one.step, one.ended, one.error) for one in self.saves.finish()]


def test_a_save_is_held_until_it_is_awaited() -> None:
    run, written = Run(), []

    def program() -> None:
        thread = threading.Thread(target=lambda: (run.saves.hold("ck"), written.append(run.step)))
        thread.start()
        time.sleep(0.2)
        run.step = 2
        assert not written
        thread.join()

    assert run.ended(program) == [(1, "awaited", "")]
    assert written == [2]


@pytest.mark.parametrize(("daemon", "ended"), [(True, "lost"), (False, "exit")])
def test_what_python_waits_for_at_its_end(daemon: bool, ended: str) -> None:
    run, written = Run(), []

    def write() -> None:
        run.saves.hold("ck")
        written.append("ck")

    def program() -> None:
        threading.Thread(target=write, daemon=daemon).start()
        time.sleep(0.2)

    assert run.ended(program) == [(1, ended, "")]
    assert bool(written) is not daemon


def test_a_deferred_save_is_made_where_its_result_is_asked_for() -> None:
    run, written = Run(), []

    def program() -> None:
        future = run.saves.defer(lambda: written.append(run.step))
        run.step = 3
        assert not future.done()
        future.result()
        run.saves.defer(lambda: written.append(run.step))
        run.step = 4
        run.saves.defer(lambda: 1 / 0)

    assert run.ended(program) == [
        (1, "awaited", ""), (3, "overlapped", ""), (4, "exit", "ZeroDivisionError: division by zero")
    ]  # fmt: skip
    assert written == [3, 4]


def test_a_program_that_leaves_loses_what_it_has_not_awaited() -> None:
    run, written = Run(), []

    def program() -> None:
        run.saves.defer(lambda: written.append(run.step))
        os._exit(0)

    assert run.ended(program) == [(1, "lost", "")]
    assert not written
    assert issubclass(ProgramLeft, SystemExit)


def test_what_is_held_for_long_is_complete() -> None:
    run, written = Run(), []

    def program() -> None:
        run.saves.defer(lambda: written.append(run.step))
        for step in (2, 3, 4):
            run.saves.on_step()
            run.step = step
        assert written == [3]

    assert run.ended(program) == [(1, "later", "")]
