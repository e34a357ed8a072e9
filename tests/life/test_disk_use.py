"""What the checkpoints of a run take on disk: replayed from what its ranks wrote, renamed and removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from cells import STAGES, write_project

from gonogo.evidence.rehearsal.checkpoints.disk_use import disk_need, saves_on_disk
from gonogo.evidence.rehearsal.lives import FileEvent, RankRunState, RankSave, SavePlan
from gonogo.evidence.rehearsal.record import AcceleratorFacts, RankRecord, RehearsalRecord
from gonogo.finding import Certainty, Report, UserError, Verdict
from gonogo.finding.lives.life_report import DiskNeed, LifeReport, SaveOnDisk
from gonogo.judge.rehearsal_findings import findings_in_rehearsal
from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.lives import check_save_options
from gonogo.rehearse.request import RehearsalRequest


def record_of_lives(*lives: RankRunState, world: int = 0, **files: int) -> RehearsalRecord:
    accelerator = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 1 << 30)
    ranks = [RankRecord(number, number, f"cuda:{number}", "completed", life=life) for number, life in enumerate(lives)]
    return RehearsalRecord(
        ["python", "a.py"], "/x", world or len(ranks), 1, 1, accelerator, 2, None, ranks=ranks,
        checkpoint_bytes={f"/x/{name}": size for name, size in files.items()},
    )  # fmt: skip


def _life(events: list[FileEvent], *saves: dict[str, int], plan: SavePlan | None = None) -> RankRunState:
    made = [RankSave(2 * number, files) for number, files in enumerate(saves, 1)]
    return RankRunState("first", file_events=events, saves=made, save_plan=plan)


def _opened(at: float, path: str, save: int) -> FileEvent:
    return FileEvent(at, path, save=save)


def test_the_oldest_is_removed_after_the_newest_is_complete() -> None:
    """Rank 0 removes what rank 1 has written, too."""
    first = _life(
        [
            _opened(1, "/x/1/a", 0), _opened(3, "/x/2/a", 1), FileEvent(5, "/x/1", is_removed=True, save=1),
        ],
        {"/x/1/a": 100}, {"/x/2/a": 110},
    )  # fmt: skip
    second = _life([_opened(2, "/x/1/b", 0), _opened(4, "/x/2/b", 1)], {"/x/1/b": 50}, {"/x/2/b": 50})
    saves = saves_on_disk(record_of_lives(first, second))
    assert saves == (SaveOnDisk(2, 2, 150, 0, 1, 150, 150), SaveOnDisk(4, 2, 160, 1, 1, 160, 310))
    assert disk_need(record_of_lives(first, second)) == DiskNeed(160, 2, 310, True, True)


def test_a_folder_that_gets_its_name_when_it_is_complete() -> None:
    events = [
        _opened(1, "/x/ck.tmp/a", 0), FileEvent(2, "/x/ck", "/x/ck.tmp", save=0),
        _opened(3, "/x/ck.tmp/a", 1), FileEvent(4, "/x/ck", is_removed=True, save=1),
        FileEvent(5, "/x/ck", "/x/ck.tmp", save=1),
    ]  # fmt: skip
    saves = saves_on_disk(record_of_lives(_life(events, {"/x/ck/a": 100}, {"/x/ck/a": 100})))
    assert [(one.kept, one.kept_bytes, one.peak_bytes) for one in saves] == [(1, 100, 100), (1, 100, 200)]


def test_a_file_that_is_written_over_is_there_once() -> None:
    events = [_opened(1, "/x/a", 0), _opened(2, "/x/a", 1)]
    record = record_of_lives(_life(events, {"/x/a": 100}, {"/x/a": 120}))
    assert [(one.kept_bytes, one.peak_bytes) for one in saves_on_disk(record)] == [(100, 100), (120, 120)]
    assert disk_need(record) == DiskNeed(120, 1, 120, True, True)


def test_files_of_ranks_that_were_not_run_count_for_each_save() -> None:
    events = [_opened(1, "/x/ck1/rank0", 0), _opened(2, "/x/ck2/rank0", 1)]
    record = record_of_lives(_life(events, {"/x/ck1/rank0": 100}, {"/x/ck2/rank0": 100}), world=2)
    record.checkpoint_bytes = {"/x/ck1/rank0": 100, "/x/ck2/rank0": 100, "/x/ck2/rank1": 30}
    assert [(one.files, one.nbytes, one.kept_bytes) for one in saves_on_disk(record)] == [(2, 130, 130), (2, 130, 260)]


@pytest.mark.parametrize(
    ("plan", "need"),
    [
        (None, DiskNeed(100, 1, 100, False, False)),
        (SavePlan(5, True), DiskNeed(100, 5, 500, True, True)),
        (SavePlan(5, False), DiskNeed(100, 5, 500, True, False)),
        (SavePlan(5, False, 2), DiskNeed(100, 3, 300, True, True)),
        (SavePlan(2, True, 3), DiskNeed(100, 2, 200, True, True)),
        (SavePlan(None, False, 1), DiskNeed(100, 2, 200, True, True)),
    ],
)
def test_how_many_there_are_at_a_time(plan: SavePlan | None, need: DiskNeed) -> None:
    record = record_of_lives(_life([_opened(1, "/x/a", 0)], {"/x/a": 100}, plan=plan))
    assert disk_need(record) == need
    for free, count in ((need.nbytes, 0), (need.nbytes - 1, 1)):
        record.disk_bytes = free
        found = [one for one in findings_in_rehearsal(record) if one.hazard == "checkpoint-write-disk-full"]
        assert len(found) == count
        assert all((one.certainty is Certainty.CERTAIN) is need.is_exact or not need.is_known for one in found)


def test_options_of_saves() -> None:
    check_save_options((), 1, None, kill_between_writes=False)
    check_save_options(STAGES, 3, "2T", kill_between_writes=False)
    for saves, disk, message in (
        (2, None, "--saves needs --life"),
        (1, "2T", "--disk needs --life"),
        (1, "2", "--disk '2'"),
    ):
        with pytest.raises(UserError, match=message):
            check_save_options((), saves, disk, kill_between_writes=False)
    with pytest.raises(UserError, match="kill-between-writes"):
        check_save_options(STAGES, 2, None, kill_between_writes=True)


def _rehearsed(words: str, saves: int, folder: Path, monkeypatch: pytest.MonkeyPatch, resume: str | None) -> Report:
    folder.mkdir()
    write_project(folder)
    monkeypatch.chdir(folder)
    _, report = rehearse_and_report(
        RehearsalRequest(
            words.split(), gpus="2xH100-80G", ranks="all", as_installed=True, life=STAGES, saves=saves,
            resume_with=resume, disk="1M",
        )
    )  # fmt: skip
    return report


@pytest.mark.very_slow
@pytest.mark.parametrize(
    ("words", "removed", "kept"),
    [
        ("torchrun --nproc_per_node 2 trainer.py --output_dir out --max_steps 8 --save_steps 2 --report_to none "
         "--per_device_train_batch_size 1 --optim adamw_torch --save_total_limit 2", [0, 0, 1], [1, 2, 2]),
        ("python files.py each atomic", [0, 1], [1, 1]),
    ],
)  # fmt: skip
def test_saves_of_real_programs(
    words: str, removed: list[int], kept: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = "trainer.py" in words
    resume = "--resume_from_checkpoint=out/checkpoint-4" if trainer else None
    report = _rehearsed(words, len(kept), tmp_path / "run", monkeypatch, resume)
    assert report.rehearsal is not None
    life = report.rehearsal.life
    assert isinstance(life, LifeReport), report.skipped
    assert [one.removed for one in life.saves] == removed
    assert [one.kept for one in life.saves] == kept
    assert report.verdict is (Verdict.NO_GO if trainer else Verdict.GO)
    assert {one.hazard for one in report.findings} & {"checkpoint-write-disk-full"} == (
        {"checkpoint-write-disk-full"} if trainer else set()
    )
