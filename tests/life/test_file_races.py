"""Ranks that use the same path of a checkpoint in no order."""

from __future__ import annotations

from pathlib import Path

import pytest
from cells import STAGES, write_project
from test_disk_use import record_of_lives

from gonogo.evidence.rehearsal.checkpoints.file_races import FileRace, file_races
from gonogo.evidence.rehearsal.lives import FileEvent, RankRunState, SavedTensor
from gonogo.finding import Verdict
from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.request import RehearsalRequest

_STATE = SavedTensor("ck/model.pt", "a", (1,), "float32", (("parameter", "", "a"),))
HAZARD = "checkpoint-written-by-every-rank"


def _write(path: str, collectives: int = 3, others: int = 0) -> FileEvent:
    return FileEvent(1.0, path, collectives=collectives, others_since=others)


def _removed(path: str, collectives: int = 3) -> FileEvent:
    return FileEvent(1.0, path, collectives=collectives, is_removed=True)


def _renamed(source: str, target: str, collectives: int = 3) -> FileEvent:
    return FileEvent(1.0, target, source, collectives)


def _races(ours: list[FileEvent], theirs: list[FileEvent], reads: list[FileEvent] | None = None) -> list[FileRace]:
    first = RankRunState("first", saved=[_STATE], file_events=ours)
    return file_races(record_of_lives(first, RankRunState("first", file_events=theirs, file_reads=reads or [])))


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ([_write("/x/ck/model.pt")], [_write("/x/ck/model.pt")], "written-twice"),
        ([_write("/x/ck/model.pt", 3)], [_write("/x/ck/model.pt", 4)], ""),
        ([_write("/x/ck/model.pt")], [_write("/x/ck/model.pt", others=1)], ""),
        ([_write("/x/ck/config.json")], [_write("/x/ck/config.json")], ""),
        ([_write("/x/log.pt")], [_write("/x/log.pt")], ""),
        ([_removed("/x/ck")], [_removed("/x/ck")], "removed-twice"),
        ([_removed("/x/ck")], [_write("/x/ck/other.pt")], "removed-in-use"),
        ([_removed("/x/ck", 2)], [_write("/x/ck/other.pt")], ""),
        ([_removed("/x/other")], [_removed("/x/other")], ""),
        ([_renamed("/x/ck", "/x/new")], [_renamed("/x/ck", "/x/new")], "removed-twice"),
    ],
)
def test_two_ranks_at_one_path(ours: list[FileEvent], theirs: list[FileEvent], found: str) -> None:
    assert [race.kind for race in _races(ours, theirs)] == ([found] if found else [])


def test_who_removes_and_who_reads_is_told() -> None:
    reads = [_write("/x/ck/model.pt")]
    assert _races([_write("/x/ck/model.pt")], [], reads) == [FileRace("read-while-written", "/x/ck/model.pt", (0, 1))]
    assert _races([_removed("/x/ck")], [], reads) == [FileRace("removed-in-use", "/x/ck/model.pt", (0, 1))]
    appended = FileEvent(1.0, "/x/ck/model.pt", collectives=3, appends=True)
    assert _races([appended], [], reads) == []


@pytest.mark.very_slow
@pytest.mark.parametrize(
    ("how", "is_found"),
    [
        ("all", True), ("read", True), ("read barrier", False), ("remove", True), ("remove barrier", False),
        ("rename", True), ("rename barrier", False), ("parts", False),
    ],
)  # fmt: skip
def test_races_of_a_real_loop(how: str, is_found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    _, report = rehearse_and_report(
        RehearsalRequest(
            ["torchrun", "--nproc_per_node", "2", "races.py", *how.split()], gpus="2xH100-80G", ranks="all",
            as_installed=True, life=STAGES,
        )
    )  # fmt: skip
    assert report.verdict is Verdict.GO, report.skipped
    assert (HAZARD in {one.hazard for one in report.findings}) is is_found
