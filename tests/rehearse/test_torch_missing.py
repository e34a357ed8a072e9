"""A Python without torch, or with too old a one: one line that says so, before anything is run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import samples
from packaging.version import Version

from gonogo.finding import UserError
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse


def test_torch_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = importlib.util.find_spec

    def without_torch(name: str, package: str | None = None) -> Any:
        return None if name == "torch" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_torch)
    (tmp_path / "train.py").write_text("")
    request = RehearsalRequest(command=["python", str(tmp_path / "train.py")])
    with pytest.raises(UserError, match="torch is not installed"):
        rehearse(request)


def test_a_torch_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        "gonogo.rehearse.launch.torch_installed.installed_version", lambda _name: Version("2.0.1+cu117")
    )
    (tmp_path / "train.py").write_text("")
    request = RehearsalRequest(command=["python", str(tmp_path / "train.py")])
    with pytest.raises(UserError, match=r"torch 2\.0\.1\+cu117 .* torch 2\.1 or newer"):
        rehearse(request)


def test_a_worker_that_was_killed_leaves_its_last_words() -> None:
    record = samples.rehearsal_record()
    record.ranks[0].outcome = "killed"
    record.ranks[0].events = ["the worker wrote no record: exit status 70", "first line", "a", "b", "the last line"]
    told = " ".join(skipped.why.en for skipped in rehearsal_report(record).skipped)
    assert "exit status 70" in told
    assert "the last line" in told
    assert "first line" not in told
    assert "--keep DIR" in told  # what to do
    record.ranks[0].events = ["the worker wrote no record: ended by SIGKILL"]
    assert "memory" in " ".join(skipped.why.en for skipped in rehearsal_report(record).skipped)
