"""Rehearsals that are kept: the same again is answered from the record, and nothing else is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gonogo.confinement.system_calls import can_trace_calls
from gonogo.evidence.environment.hardware import machine_from
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding.errors import UserError
from gonogo.prepare.packages import packages_for
from gonogo.rehearse.cache import key
from gonogo.rehearse.cache.lookup import FOLDER, cached_rehearsal
from gonogo.rehearse.cache.store import Store, max_bytes
from gonogo.rehearse.launch.launch import UNSTATED
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse

pytestmark = pytest.mark.skipif(not can_trace_calls(), reason="this kernel doesn't tell which files are asked for")

_FAKE_WORKER = str(Path(__file__).with_name("fake_worker.py"))
_LAUNCH = """
set -e
source settings.sh
source run.sh
if [ -f own.sh ]; then source own.sh; fi
for file in data/*; do wc -l < "$file"; done
python train.py $(cat arguments.txt)
"""
_TRAIN = """
import os, sys
sys.path.insert(0, "modules")
from helpers import used
open("config.json").read()
"""


class Project:
    """A user's folder, and what was rehearsed anew in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder.parent / "runs"

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def rehearse(self, *command: str, **options: object) -> RehearsalRecord:
        request = RehearsalRequest(list(command or ("bash", "launch.sh")), **{"timeout": 60.0, **options})  # type: ignore[arg-type]
        return rehearse(request, None)

    def is_kept(self, *command: str, **options: object) -> bool:
        return is_kept(RehearsalRequest(list(command or ("bash", "launch.sh")), **options))  # type: ignore[arg-type]

    def is_answered(self, *command: str, **options: object) -> bool:
        """Whether the answer comes from an earlier rehearsal."""
        return any("cached result of the rehearsal of" in note for note, _ in self.rehearse(*command, **options).notes)


def is_kept(request: RehearsalRequest) -> bool:
    """Whether an earlier rehearsal answers; nothing is rehearsed."""
    stated = machine_from(request.gpus, request.nodes, request.host_memory, UNSTATED)
    kept = cached_rehearsal(request, stated, packages_for(None, (), None, lambda text: None))
    return kept is not None and kept.record() is not None


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(tmp_path / "project")
    made.write("launch.sh", _LAUNCH)
    made.write("settings.sh", "export LEVEL=1\n")
    made.write("run.sh", "echo run-$GITHUB_RUN_ID\n")
    made.write("arguments.txt", "--lr 1\n")
    made.write("data/one.txt", "1\n")
    made.write("train.py", _TRAIN)
    made.write("modules/helpers.py", "used = 1\n")
    made.write("modules/extra-1.0.dist-info/METADATA", "")
    made.write("config.json", "{}")
    monkeypatch.setenv("GITHUB_RUN_ID", "1")
    monkeypatch.chdir(made.folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GONOGO_CACHE_SIZE", "100M")
    monkeypatch.setattr(
        "gonogo.rehearse.workers.workers.python_module", lambda python, _module, plan, **_: [python, _FAKE_WORKER, plan]
    )
    # The worker of tests doesn't tell what it looks for; nothing here needs it.
    monkeypatch.setattr("gonogo.rehearse.path_access._OWN", (b"fake_worker.py", b"run_module('gonogo."))
    return made


def rewritten(path: Path, text: str) -> None:
    """Another content of the same size, and the times as before."""
    before = path.stat()
    assert len(text) == before.st_size
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Project, pytest.MonkeyPatch], object]] = {
    "the script, size and time as before": lambda p, _: rewritten(
        p.folder / "launch.sh", _LAUNCH.replace("-e", "-u", 1)
    ),
    "what the script sources": lambda p, _: rewritten(p.folder / "settings.sh", "export LEVEL=2\n"),
    "what a program of the script reads": lambda p, _: rewritten(p.folder / "arguments.txt", "--lr 2\n"),
    "the program": lambda p, _: rewritten(p.folder / "train.py", _TRAIN.replace("os, ", "io, ")),
    "a module": lambda p, _: rewritten(p.folder / "modules" / "helpers.py", "used = 2\n"),
    "what the program reads": lambda p, _: rewritten(p.folder / "config.json", "[]"),
    "a file that was looked for": lambda p, _: p.write("own.sh", "export LEVEL=3\n"),
    "a file in a listed folder": lambda p, _: p.write("data/two.txt", "2\n"),
    "a file that is gone": lambda p, _: (p.folder / "data" / "one.txt").unlink(),
    "a folder where a file was": lambda p, _: ((p.folder / "config.json").unlink(), p.write("config.json/a", "")),
    "a link to another file": lambda p, _: (
        (p.folder / "config.json").unlink(),
        (p.folder / "config.json").symlink_to("settings.sh"),
    ),
    "a module that comes first": lambda p, _: p.write("modules/helpers/__init__.py", "used = 3\n"),
    "a package's version": lambda p, _: (p.folder / "modules/extra-1.0.dist-info").rename(
        "modules/extra-1.1.dist-info"
    ),
    "a variable": lambda p, m: m.setenv("LEARNING_RATE", "1e-4"),
    "a variable of the job that is named": lambda p, m: m.setenv("GITHUB_RUN_ID", "2"),
    "gonogo's code": lambda p, m: m.setattr(key, "source_digest", lambda rooms: "another"),
    "gonogo's release": lambda p, m: m.setattr("gonogo.__version__", "99"),
}
OPTIONS: tuple[dict[str, object], ...] = ({"gpus": "2xA100-80G"}, {"steps": 3}, {"host_memory": "1T"}, {"ranks": "all"})


def test_what_has_changed_is_not_answered(project: Project, tmp_path: Path) -> None:
    project.rehearse()
    assert project.is_kept()
    shutil.copytree(project.folder, tmp_path / "before")
    wrong = []
    for name, change in CHANGES.items():
        with pytest.MonkeyPatch.context() as patch:
            change(project, patch)
            if project.is_kept():
                wrong.append(f"answered in spite of {name}")
        for entry in project.folder.iterdir():  # the folder itself stays: it is the current one
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.copytree(tmp_path / "before", project.folder, dirs_exist_ok=True)
        if not project.is_kept():
            wrong.append(f"not answered after {name} was taken back")
    wrong += [f"answered with {options}" for options in OPTIONS if project.is_kept(**options)]
    assert not wrong
    assert not project.is_kept("bash", "launch.sh", "--more")


def test_the_same_again_is_answered_at_once(project: Project) -> None:
    first = project.rehearse()
    started = time.monotonic()
    again = project.rehearse()
    assert time.monotonic() - started < 5
    (note, note_zh) = again.notes[0]
    assert note.startswith("cached result of the rehearsal of 20")
    assert "--no-cache" in note
    assert "--no-cache" in note_zh
    assert again.notes[1:] == first.notes
    assert again.ranks == first.ranks
    assert not project.is_answered(use_cache=False)
    assert not project.is_answered(keep=project.folder.parent / "records")


def test_what_changes_nothing_is_answered(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.rehearse()
    project.write("report.json", "{}")
    monkeypatch.setenv("GITHUB_RUN_NUMBER", "2")
    monkeypatch.setenv("TERM", "vt100")
    for name in ("train.py", "config.json"):
        os.utime(project.folder / name)
    assert project.is_kept()


@pytest.mark.parametrize(
    "program",
    ["import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('192.0.2.1', 9))",
     "import subprocess; subprocess.run(['test', '-f', 'nothing'])", "raise SystemExit"],
    ids=["network", "another program's looks", "no record"],
)  # fmt: skip
def test_what_is_not_all_known_is_not_kept(program: str, project: Project) -> None:
    project.write("train.py", f"open('config.json').read()\n{program}\n")
    project.rehearse("python", "train.py")
    assert Store(FOLDER).names("") == []


def test_a_broken_entry_is_rehearsed(project: Project) -> None:
    project.rehearse()
    store = Store(FOLDER)
    (name,) = store.names("")
    path = store.folder / name
    whole = path.read_bytes()
    for broken in (b"", whole[:100], whole[:200] + bytes(50) + whole[250:], b"\0" * 100):
        path.write_bytes(broken)
        assert not project.is_kept()
        assert not path.exists()
    assert not project.is_answered()
    assert project.is_answered()


def test_two_processes_at_once(project: Project) -> None:
    code = (
        "import sys; import gonogo.rehearse.workers.workers as w; import gonogo.rehearse.path_access as k\n"
        "from gonogo.rehearse.request import RehearsalRequest; from gonogo.rehearse.run import rehearse\n"
        "w.python_module = lambda python, _module, plan, **_: [python, sys.argv[1], plan]\n"
        "k._OWN = (b'fake_worker.py', *k._OWN)\n"
        "rehearse(RehearsalRequest(['bash', 'launch.sh']))\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, _FAKE_WORKER]) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    assert all(not name.startswith(".") for name in os.listdir(Store(FOLDER).folder))
    assert project.is_kept()


def test_the_least_recently_used_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GONOGO_CACHE_SIZE", "1M")
    store = Store("some")
    for number in range(4):
        store.write(f"a-{number}", bytes(300_000))
        os.utime(store.folder / f"a-{number}", (number, number))
        if number == 2:
            assert store.read("a-0") is not None
    assert sorted(store.names("a-")) == ["a-0", "a-2", "a-3"]
    store.write("too large", bytes(2_000_000))
    assert len(store.names("")) == 3


def test_a_size_that_is_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_CACHE_SIZE", "much")
    with pytest.raises(UserError, match="GONOGO_CACHE_SIZE 'much' is not a size"):
        max_bytes()


def test_without_a_cache_folder_it_is_rehearsed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("no-folder", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.folder / "no-folder"))
    assert not project.is_answered()


_REAL = """
import os, subprocess
import torch
from torch.utils.data import DataLoader

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.full((4,), float(open(f"rows/{index}.txt").read()))

os.path.exists("checkpoint")
subprocess.run(["git", "rev-parse", "HEAD"])
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters())
for batch in DataLoader(Rows(), num_workers=1):
    model(batch.cuda()).sum().backward()
    optimizer.step()
"""


def test_a_real_worker_tells_all_that_it_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GONOGO_CACHE_SIZE", "100M")
    folder = tmp_path / "project"
    (folder / "rows").mkdir(parents=True)
    monkeypatch.chdir(folder)
    for index in range(4):
        (folder / "rows" / f"{index}.txt").write_text("1")
    (folder / "train.py").write_text(_REAL)
    request = RehearsalRequest([sys.executable, "train.py"], gpus="1xH100-80G")
    first = rehearse(request)
    assert first.ranks[0].outcome == "completed", first.ranks[0].failure
    again = rehearse(request)
    assert again.notes[1:] == first.notes
    (folder / "checkpoint").mkdir()
    assert not is_kept(request)
    (folder / "checkpoint").rmdir()
    (folder / "report.json").write_text("{}")  # where modules are looked for, and nothing else
    assert is_kept(request)
    rewritten(folder / "rows" / "0.txt", "2")
    assert not is_kept(request)
