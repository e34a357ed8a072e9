"""What a training reports to gets the guard's report too: each tracker for real, offline; nothing is started for it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from guard.launched import environment, gonogo_run
from guard.worlds import HERE
from ports import free_port

from gonogo.guard.trackers import detection as trackers

TRACKERS = ("wandb", "mlflow", "tensorboard", "swanlab")
HANDED = "the report is also in"


def run(folder: Path, tracker: str, ends: str, *options: str, path: str = "") -> str:
    """The guarded training's standard error; its status is what it would be without gonogo."""
    (folder / "out").mkdir()
    program = [sys.executable, str(HERE / "tracked.py"), tracker, ends, str(folder / "out")]
    variables = environment(
        RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
        WANDB_SILENT="true", PYTHONPATH=os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH", "")])),
    )  # fmt: skip
    command = gonogo_run(folder / "run", *options, "--", *program)
    done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == (1 if ends == "fails" else 0), done.stderr[-3000:]
    assert ("trained" in done.stdout) == (ends != "fails")
    assert "internal error in the guard" not in done.stderr
    return done.stderr


def pages(folder: Path, tracker: str) -> list[str]:
    """The pages that lie where the tracker keeps its files."""
    found = [path.read_text(encoding="utf-8") for path in sorted((folder / "out").rglob("*.html"))]
    if tracker == "tensorboard":
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder / "out"))
        events.Reload()
        [told] = events.Tensors("gonogo/report/text_summary")
        assert b"gonogo run" in told.tensor_proto.string_val[0]
    if tracker == "mlflow":
        import mlflow

        mlflow.set_tracking_uri(f"sqlite:///{folder}/out/mlflow.db")
        [of_run] = mlflow.search_runs(search_all_experiments=True, output_format="list")
        assert "gonogo.findings" in of_run.data.tags
    return found


@pytest.mark.very_slow
@pytest.mark.parametrize("ends", ["exits", "closes", "fails"])
@pytest.mark.parametrize(
    "tracker",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                importlib.util.find_spec(name) is None, reason=f"{name} is not here: pip install {name}"
            ),
        )
        for name in TRACKERS
    ],
)
def test_a_trackers_open_run_gets_the_report(tracker: str, ends: str, tmp_path: Path) -> None:
    errors = run(tmp_path, tracker, ends)
    assert errors.count(HANDED) == 1, errors
    [page] = pages(tmp_path, tracker)
    assert "Content-Security-Policy" in page
    assert ("shapes cannot be multiplied" in page) == (ends == "fails")


STUB = """
class Html:
    def __init__(self, data, inject): self.data = data
class Run:
    id, disabled = "r1", False
    def __init__(self): self.summary = {}
    def log(self, values):
        page = values.get("gonogo/report")
        if page is not None: open("handed.html", "w").write(page.data)
    def finish(self): global run; run = None
run = None
def init(**settings): global run; run = Run()
def log(values): run.log(values)
def finish(): run.finish()
"""


@pytest.mark.slow
def test_a_training_that_fails_hands_over_why(tmp_path: Path) -> None:
    (tmp_path / "wandb.py").write_text(STUB)
    assert HANDED in run(tmp_path, "wandb", "fails", path=str(tmp_path))
    assert "shapes cannot be multiplied" in (tmp_path / "handed.html").read_text()


@pytest.mark.very_slow
def test_who_reports_nowhere_or_wants_it_not_is_left_alone(tmp_path: Path) -> None:
    assert HANDED not in run(tmp_path, "none", "exits")
    other = tmp_path / "other"
    other.mkdir()
    (other / "wandb.py").write_text(STUB)
    assert HANDED not in run(other, "wandb", "exits", "--no-trackers", path=str(other))
    assert not (other / "handed.html").exists()


def test_nothing_is_imported_and_no_run_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*TRACKERS, "tensorboardX"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(trackers, "writers", {})
    assert trackers.find_trackers() == []
    assert not set(TRACKERS) & set(sys.modules)
    idle = ModuleType("wandb")
    idle.run = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", idle)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(active_run=lambda: None))
    monkeypatch.setitem(sys.modules, "swanlab", SimpleNamespace(has_run=lambda: False))
    assert trackers.find_trackers() == []


def test_of_writers_in_folders_of_each_other_the_outer_one_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "writers", {"/runs/a": object, "/runs/a/1716": object})
    [tracker] = trackers.find_trackers()
    assert tracker.key == "tensorboard /runs/a"
