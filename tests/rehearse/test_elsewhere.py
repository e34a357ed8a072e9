"""What lies only on the run's machine: its absence here is a limit, never the program's error."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.rehearsal.record import AcceleratorFacts, Failure, Frame, RankRecord, RehearsalRecord
from gonogo.rehearse.limits.certificate import apply_limits
from gonogo.rehearse.limits.world import ProjectWorld

NO_FILE = "[Errno 2] No such file or directory: '{}'"


def rehearsed(folder: Path, kind: str, message: str, phase: str = "load", at: str = "train.py") -> RankRecord:
    rank = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="raised")
    rank.failure = Failure(kind, message, (Frame(at, 3, "main", "", "user"),), phase, 0)  # type: ignore[arg-type]
    facts = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0)
    record = RehearsalRecord(["python"], str(folder), 1, 1, 1, facts, 2, None, ranks=[rank])
    apply_limits(record, ProjectWorld.from_files(folder, folder))
    return rank


@pytest.mark.parametrize(
    ("kind", "message", "said"),
    [
        ("ValueError", "No valid checkpoint found in output directory (/nowhere/out)", "resumes from /nowhere/out"),
        ("ValueError", "No valid checkpoint found in output directory (empty)", "resumes from empty"),
        ("ValueError", "Can't find a valid checkpoint at /nowhere/out/checkpoint-8", "from /nowhere/out/checkpoint-8"),
        ("ValueError", "Tried to find out/step_8 but folder does not exist", "from out/step_8"),
        ("FileNotFoundError", NO_FILE.format("/nowhere/rows.json"), "/nowhere/rows.json does not exist on this"),
        ("FileNotFoundError", NO_FILE.format("/nowhere/models/ds_config.json"), "does not exist on this machine"),
        ("FileNotFoundError", NO_FILE.format("data/train.jsonl"), "data/train.jsonl does not exist on this machine"),
        ("OSError", "Not found: \"/nowhere/tokenizer.model\": No such file or directory Error #2",
         "/nowhere/tokenizer.model does not exist on this machine"),
    ],
)  # fmt: skip
def test_what_is_not_on_this_machine_may_be_on_the_runs(tmp_path: Path, kind: str, message: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    rank = rehearsed(tmp_path, kind, message, "init")
    assert rank.outcome == "unsupported"
    assert said in rank.unsupported[0].why


@pytest.mark.parametrize(
    ("kind", "message", "phase"),
    [
        ("ValueError", "No valid checkpoint found in output directory (out)", "init"),  # it is here, with a log in it
        ("FileNotFoundError", NO_FILE.format("configs/mine.yaml"), "load"),
        ("FileNotFoundError", NO_FILE.format("ds_config.json"), "load"),
        ("FileNotFoundError", NO_FILE.format("out/log.txt"), "load"),  # it is here: an earlier word of the same file
        ("FileNotFoundError", NO_FILE.format("/nowhere/out/best.pt"), "step"),
        ("ValueError", "the batch size must be positive", "load"),
    ],
)
def test_what_should_have_come_with_the_project_is_its_error(
    tmp_path: Path, kind: str, message: str, phase: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "log.txt").write_text("")
    assert rehearsed(tmp_path, kind, message, phase).outcome == "raised"


def test_a_program_that_is_only_not_installed_here_is_named(tmp_path: Path) -> None:
    ran = rehearsed(tmp_path, "FileNotFoundError", NO_FILE.format("ffmpeg"), at="/usr/lib/python3.11/subprocess.py")
    assert "the program ffmpeg is not installed on this machine" in ran.unsupported[0].why
