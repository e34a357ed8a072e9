"""A launch that resumes from a checkpoint which isn't here: both lives are rehearsed, the first without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cells import STAGES, write_project
from samples import rehearsal_record

from gonogo.evidence.rehearsal.lives import RankRunState, SavedTensor
from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.finding import Verdict
from gonogo.finding.lives.life_report import LifeReport
from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.ranks.rank_options import LIFE_DEFAULT
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.resumed_launch import give_name, missing_checkpoint, with_life_of_resume

_TRAIN = "torchrun --nproc_per_node 2 train.py"


@pytest.mark.parametrize(
    ("command", "path", "first"),
    [
        (f"{_TRAIN} --resume_from_checkpoint out/a --bf16", "out/a", f"{_TRAIN} --bf16"),
        (f"{_TRAIN} --resume-from-checkpoint=out/a", "out/a", _TRAIN),
        ("llamafactory-cli train x.yaml resume_from_checkpoint=out/a", "out/a", "llamafactory-cli train x.yaml"),
        (f"{_TRAIN} --resume_from_checkpoint out/a --save_steps 500", "out/a", f"{_TRAIN} --save_steps 2"),
        (f"{_TRAIN} --save_steps=500 --resume_from_checkpoint out/a", "out/a", f"{_TRAIN} --save_steps=2"),
        (f"{_TRAIN} --save_steps 1 --resume_from_checkpoint out/a", "out/a", f"{_TRAIN} --save_steps 1"),
    ],
)
def test_the_first_life_leaves_the_checkpoint_out_and_saves_in_time(
    command: str, path: str, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    missing = missing_checkpoint(command.split(), 2)
    assert missing is not None
    assert (missing.path, missing.first_command) == (path, first.split())


@pytest.mark.parametrize(
    "words",
    [
        "", "--resume_from_checkpoint True", "--resume_from_checkpoint latest", "--resume_from_checkpoint",
        "--resume_from_checkpoint --bf16", "--resume_from_checkpoint here", "--resume_from_checkpoint $OUT/a",
        "resume_from_checkpoint out/a",
    ],
)  # fmt: skip
def test_no_checkpoint_is_named_or_it_is_here(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert missing_checkpoint([*_TRAIN.split(), *words.split()], 2) is None


def test_a_rehearsal_of_one_life_becomes_one_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    request = RehearsalRequest([*_TRAIN.split(), "--resume_from_checkpoint", "out/a"], ranks="0")
    changed = with_life_of_resume(request, own_ranks=True)
    assert (changed.life, changed.ranks, changed.command) == (STAGES, LIFE_DEFAULT, request.command)
    assert with_life_of_resume(request, own_ranks=False).ranks == "0"
    (tmp_path / "out" / "a").mkdir(parents=True)
    assert with_life_of_resume(request, own_ranks=True) == request


def test_what_was_saved_gets_the_name_that_is_resumed_from(tmp_path: Path) -> None:
    saved = tmp_path / "tree" / "work" / "out" / "checkpoint-2"
    saved.mkdir(parents=True)
    (saved / "model.pt").write_bytes(b"1234")
    life = RankRunState("first", saved=[SavedTensor("out/checkpoint-2/model.pt", "a", (1,), "float32", ())])
    record = rehearsal_record(RankRecord(0, 0, "cuda:0", "completed", life=life), world_size=1)
    record.checkpoint_bytes = {"/work/out/checkpoint-2/model.pt": 4, "/work/out/other": 1}
    assert give_name(tmp_path / "tree", record, "out/checkpoint-500") == "out/checkpoint-2"
    assert (tmp_path / "tree" / "work" / "out" / "checkpoint-500" / "model.pt").read_bytes() == b"1234"
    assert record.checkpoint_bytes == {"/work/out/checkpoint-500/model.pt": 4, "/work/out/other": 1}
    assert give_name(tmp_path / "tree", record, "out/checkpoint-900") is None  # it is no longer there


@pytest.mark.very_slow
def test_the_launch_resumes_from_what_it_would_have_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = (
        "torchrun --nproc_per_node 2 trainer.py --output_dir out --max_steps 800 --save_steps 100 --report_to none "
        "--per_device_train_batch_size 1 --optim adamw_torch --resume_from_checkpoint out/checkpoint-500"
    )
    request = RehearsalRequest(command.split(), gpus="2xH100-80G", as_installed=True)
    _, report = rehearse_and_report(with_life_of_resume(request, own_ranks=True))
    assert report.verdict is Verdict.GO
    life = report.rehearsal.life if report.rehearsal is not None else None
    assert isinstance(life, LifeReport)
    assert {row.status for row in life.states} == {"restored"}
    assert any("checkpoint-500" in note.en for note in report.notes)
