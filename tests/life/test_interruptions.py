"""Killed between the writes of a save: what is on disk then, and what the resume comes to beside what it really is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from interruptions import CELLS, TRUTH, said

from gonogo.evidence.rehearsal.lives import FileEvent, RankLife
from gonogo.evidence.rehearsal.record import AcceleratorFacts, RankRecord, RehearsalRecord
from gonogo.rehearse.interruptions import SaveMoment, moments, restore_tree_at, write_events


def _first(*events: FileEvent) -> RehearsalRecord:
    record = RehearsalRecord(["python"], "/x", 1, 1, 1, AcceleratorFacts("H100", "cuda", 80 << 30, 1 << 30), 2, None)
    record.ranks = [RankRecord(0, 0, "cuda:0", "completed", life=RankLife("first", file_events=list(events)))]
    return record


def _files(tree: Path) -> dict[str, int]:
    found = (path for path in sorted(tree.rglob("*")) if path.is_file())
    return {str(path.relative_to(tree)): path.stat().st_size for path in found}


def test_what_is_on_disk_at_each_moment(tmp_path: Path) -> None:
    """What came later is taken back; a folder that was renamed has its old name again, with what was in it by then."""
    tree = tmp_path / "tree"
    for name in ("x/log.txt", "x/ck/model.pt", "x/ck/optimizer.pt", "x/latest"):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("12345678")
    first = _first(
        FileEvent(1.0, "/x/log.txt"), FileEvent(2.0, "/x/ck.tmp/model.pt"), FileEvent(3.0, "/x/gone.lock"),
        FileEvent(4.0, "/x/ck.tmp/optimizer.pt"), FileEvent(5.0, "/x/ck", "/x/ck.tmp"), FileEvent(6.0, "/x/latest"),
    )  # fmt: skip
    events = write_events(first, tree)
    assert [event.at for event in events] == [1.0, 2.0, 4.0, 5.0, 6.0]
    every = moments(events, {"/x/ck.tmp/model.pt", "/x/ck.tmp/optimizer.pt"})
    assert every == [SaveMoment(1, torn=True), SaveMoment(1), SaveMoment(2, torn=True), SaveMoment(2), SaveMoment(3)]
    at = {}
    for number, moment in enumerate(every):
        restore_tree_at(tree, tmp_path / str(number), events, moment)
        at[number] = _files(tmp_path / str(number))
    assert at[0] == {"x/ck.tmp/model.pt": 4, "x/log.txt": 8}
    assert at[1] == {"x/ck.tmp/model.pt": 8, "x/log.txt": 8}
    assert at[3] == {"x/ck.tmp/model.pt": 8, "x/ck.tmp/optimizer.pt": 8, "x/log.txt": 8}
    assert at[4] == {"x/ck/model.pt": 8, "x/ck/optimizer.pt": 8, "x/log.txt": 8}
    assert moments(events, set()) == []


def test_one_rank_is_killed_and_the_others_go_on_up_to_the_next_collective(tmp_path: Path) -> None:
    record = _first(
        FileEvent(1.0, "/x/model.pt"), FileEvent(2.0, "/x/shard_0.pt"), FileEvent(5.0, "/x/latest", collectives=1)
    )
    own = [FileEvent(3.0, "/x/shard_1.pt"), FileEvent(4.0, "/x/log_1")]
    record.ranks.append(RankRecord(1, 1, "cuda:1", "completed", life=RankLife("first", file_events=own)))
    tree = tmp_path / "tree"
    (tree / "x").mkdir(parents=True)
    for name in ("model.pt", "shard_0.pt", "shard_1.pt", "log_1", "latest"):
        (tree / "x" / name).write_text("12345678")
    events = write_events(record, tree)
    assert [(event.path, event.rank) for event in events] == [
        ("/x/model.pt", 0), ("/x/shard_0.pt", 0), ("/x/shard_1.pt", 1), ("/x/log_1", 1), ("/x/latest", 0)
    ]  # fmt: skip
    every = moments(events, {"/x/model.pt", "/x/shard_0.pt", "/x/shard_1.pt"})
    alone = [one for one in every if one.is_alone]
    # Before its first file, rank 0 has written nothing, and rank 1 all it writes before the collective. That rank 1
    # lacks a file is what is there between two writes as well.
    assert [(one.number, one.happened(events)) for one in alone] == [(0, (2, 3)), (1, (0, 2, 3))]
    restore_tree_at(tree, tmp_path / "alone", events, alone[1])
    assert _files(tmp_path / "alone") == {"x/log_1": 8, "x/model.pt": 8, "x/shard_1.pt": 8}


def test_no_file_is_in_a_folder_that_has_not_its_name_yet(tmp_path: Path) -> None:
    record = _first(FileEvent(1.0, "/x/tmp/a"), FileEvent(2.0, "/x/ck", "/x/tmp"))
    own = [FileEvent(3.0, "/x/ck/b"), FileEvent(4.0, "/x/ck/c")]
    record.ranks.append(RankRecord(1, 1, "cuda:1", "completed", life=RankLife("first", file_events=own)))
    (tmp_path / "x" / "ck").mkdir(parents=True)
    for name in "abc":
        (tmp_path / "x" / "ck" / name).write_text("1")
    events = write_events(record, tmp_path)
    assert [one for one in moments(events, {"/x/tmp/a"}) if one.is_alone] == []


@pytest.mark.very_slow
@pytest.mark.parametrize("words", ["files.py | ", "files.py atomic", "accelerated.py"])
def test_a_kill_comes_to_what_it_really_does(words: str, tmp_path: Path) -> None:
    (cell,) = [one for one in CELLS if one.name.startswith(words)]
    truth = json.loads(TRUTH.read_text(encoding="utf-8"))[cell.name]
    answers = said(cell, tmp_path)
    assert len(answers) >= 2
    assert answers == {file: truth[file] for file in answers}, os.fspath(tmp_path)
