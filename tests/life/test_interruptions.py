"""Killed between the writes of a save: what is on disk then, and what the resume comes to beside what it really is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from interruptions import CELLS, TRUTH, said

from gonogo.confinement.trees import OPAQUE
from gonogo.evidence.rehearsal.lives import FileEvent, RankRunState, SavedTensor
from gonogo.evidence.rehearsal.record import AcceleratorFacts, Failure, RankRecord, RehearsalRecord, UnsupportedPart
from gonogo.finding.lives.life_report import CounterRow, CounterStatus, DataStatus, LifeReport, StateRow
from gonogo.rehearse import interruptions
from gonogo.rehearse.interruptions import (
    SaveMoment,
    _files_with_state,
    _files_written_by,
    _is_failure_of_resume,
    restore_tree_at,
    save_moments,
    write_events,
)


@pytest.mark.parametrize(
    ("error", "what", "is_own"),
    [
        ("FileNotFoundError", "ck/step2/rank_1.pt", True),
        ("FileNotFoundError", "FileNotFoundError: [Errno 2]", True),
        ("FileNotFoundError", "data/rows.json", False),
        ("RuntimeError", "ck/step2/rank_1.pt", False),
        ("FileNotFoundError", "", False),
    ],
)
def test_a_file_that_the_kill_left_out_is_why_the_resume_raises(error: str, what: str, is_own: bool) -> None:
    """Also where it is told as a file that isn't on this machine: that rank stopped at it, the other waits for it."""
    failure = Failure(error, "[Errno 2] No such file or directory: 'ck/step2/rank_1.pt'", (), "load", 0)
    rank = RankRecord(1, 1, "cuda:1", "unsupported", failure=failure, unsupported=[UnsupportedPart(what, "", "")])
    assert _is_failure_of_resume(rank, failure) is is_own
    assert _is_failure_of_resume(RankRecord(1, 1, "cuda:1", "raised", failure=failure), failure)


def _first(*events: FileEvent) -> RehearsalRecord:
    record = RehearsalRecord(["python"], "/x", 1, 1, 1, AcceleratorFacts("H100", "cuda", 80 << 30, 1 << 30), 2, None)
    record.ranks = [RankRecord(0, 0, "cuda:0", "completed", life=RankRunState("first", file_events=list(events)))]
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
    every = save_moments(events, {"/x/ck.tmp/model.pt", "/x/ck.tmp/optimizer.pt"})
    assert every == [SaveMoment(1, torn=True), SaveMoment(1), SaveMoment(2, torn=True), SaveMoment(2), SaveMoment(3)]
    at = {}
    for number, moment in enumerate(every):
        restore_tree_at(tree, tmp_path / str(number), events, moment)
        at[number] = _files(tmp_path / str(number))
    assert at[0] == {"x/ck.tmp/model.pt": 4, "x/log.txt": 8}
    assert at[1] == {"x/ck.tmp/model.pt": 8, "x/log.txt": 8}
    assert at[3] == {"x/ck.tmp/model.pt": 8, "x/ck.tmp/optimizer.pt": 8, "x/log.txt": 8}
    assert at[4] == {"x/ck/model.pt": 8, "x/ck/optimizer.pt": 8, "x/log.txt": 8}
    assert save_moments(events, set()) == []


def test_one_rank_is_killed_and_the_others_go_on_up_to_the_next_collective(tmp_path: Path) -> None:
    record = _first(
        FileEvent(1.0, "/x/model.pt"), FileEvent(2.0, "/x/shard_0.pt"), FileEvent(5.0, "/x/latest", collectives=1)
    )
    own = [FileEvent(3.0, "/x/shard_1.pt"), FileEvent(4.0, "/x/log_1")]
    record.ranks.append(RankRecord(1, 1, "cuda:1", "completed", life=RankRunState("first", file_events=own)))
    tree = tmp_path / "tree"
    (tree / "x").mkdir(parents=True)
    for name in ("model.pt", "shard_0.pt", "shard_1.pt", "log_1", "latest"):
        (tree / "x" / name).write_text("12345678")
    events = write_events(record, tree)
    assert [(event.path, event.rank) for event in events] == [
        ("/x/model.pt", 0), ("/x/shard_0.pt", 0), ("/x/shard_1.pt", 1), ("/x/log_1", 1), ("/x/latest", 0)
    ]  # fmt: skip
    every = save_moments(events, {"/x/model.pt", "/x/shard_0.pt", "/x/shard_1.pt"})
    alone = [one for one in every if one.is_alone]
    # Before its first file, rank 0 has written nothing, and rank 1 all it writes before the collective. That rank 1
    # lacks a file is what is there between two writes as well.
    assert [(one.number, one.indices_of_past_events(events)) for one in alone] == [(0, (2, 3)), (1, (0, 2, 3))]
    restore_tree_at(tree, tmp_path / "alone", events, alone[1])
    assert _files(tmp_path / "alone") == {"x/log_1": 8, "x/model.pt": 8, "x/shard_1.pt": 8}


def test_no_file_is_in_a_folder_that_has_not_its_name_yet(tmp_path: Path) -> None:
    record = _first(FileEvent(1.0, "/x/tmp/a"), FileEvent(2.0, "/x/ck", "/x/tmp"))
    own = [FileEvent(3.0, "/x/ck/b"), FileEvent(4.0, "/x/ck/c")]
    record.ranks.append(RankRecord(1, 1, "cuda:1", "completed", life=RankRunState("first", file_events=own)))
    (tmp_path / "x" / "ck").mkdir(parents=True)
    for name in "abc":
        (tmp_path / "x" / "ck" / name).write_text("1")
    events = write_events(record, tmp_path)
    assert [one for one in save_moments(events, {"/x/tmp/a"}) if one.is_alone] == []


def test_what_a_later_save_removes_is_there_until_then(tmp_path: Path) -> None:
    below, tree = tmp_path / "below", tmp_path / "tree"
    for name in ("below/x/ck/model.pt", "tree/x/ck/model.pt", "tree/x/new/model.pt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("12345678")
    later = _first(
        FileEvent(1.0, "/x/ck.tmp/model.pt"), FileEvent(2.0, "/x/other", is_removed=True),
        FileEvent(3.0, "/x/ck", is_removed=True), FileEvent(4.0, "/x/ck", "/x/ck.tmp"),
    )  # fmt: skip
    events = write_events(later, tree, below)
    assert [(event.path, event.is_removed) for event in events] == [
        ("/x/ck.tmp/model.pt", False), ("/x/ck", True), ("/x/ck", False)
    ]  # fmt: skip
    (tree / "x" / "ck" / "model.pt").write_text("1234")  # the next save's
    restore_tree_at(tree, tmp_path / "before", events, SaveMoment(0), below)
    assert _files(tmp_path / "before") == {"x/ck.tmp/model.pt": 4, "x/ck/model.pt": 8, "x/new/model.pt": 8}
    restore_tree_at(tree, tmp_path / "removed", events, SaveMoment(1), below)
    assert _files(tmp_path / "removed") == {"x/ck.tmp/model.pt": 4, "x/new/model.pt": 8}
    assert _files_written_by(events, SaveMoment(0)) == ["/x/ck.tmp/model.pt"]
    assert _files_written_by(events, SaveMoment(2)) == ["/x/ck/model.pt", "/x/ck"]


def test_what_a_later_save_replaces_is_there_again_under_the_name_that_it_had_then(tmp_path: Path) -> None:
    """A checkpoint is moved away, a new one is written at its place, and the name of the newest is replaced."""
    below, tree = tmp_path / "below", tmp_path / "tree"
    for name, text in {
        "below/x/ck/model.pt": "old", "below/x/latest": "1", "tree/x/ck.old/model.pt": "old",
        "tree/x/ck/model.pt": "newer", "tree/x/latest": "22",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    events = write_events(
        _first(
            FileEvent(1.0, "/x/ck.old", "/x/ck"), FileEvent(2.0, "/x/ck/model.pt"), FileEvent(3.0, "/x/latest.tmp"),
            FileEvent(4.0, "/x/latest", "/x/latest.tmp"),
        ), tree, below,
    )  # fmt: skip
    assert len(events) == 4
    at = []
    for number in range(-1, 4):
        restore_tree_at(tree, tmp_path / f"at{number}", events, SaveMoment(number), below)
        at.append(_files(tmp_path / f"at{number}"))
    assert at == [
        {"x/ck/model.pt": 3, "x/latest": 1},
        {"x/ck.old/model.pt": 3, "x/latest": 1},
        {"x/ck.old/model.pt": 3, "x/ck/model.pt": 5, "x/latest": 1},
        {"x/ck.old/model.pt": 3, "x/ck/model.pt": 5, "x/latest": 1, "x/latest.tmp": 2},
        {"x/ck.old/model.pt": 3, "x/ck/model.pt": 5, "x/latest": 2},
    ]


def test_what_is_saved_through_memory_may_be_in_each_file_that_is_written() -> None:
    record = _first(FileEvent(1.0, "/x/ck/model.pt"), FileEvent(2.0, "/x/ck/other"))
    (rank,) = record.ranks
    assert rank.life is not None
    rank.life.written += ["/x/ck/model.pt", "/x/ck/other"]
    rank.life.saved.append(SavedTensor("ck/model.pt", "a", (1,), "float32", (("parameter", "", "a"),)))
    assert _files_with_state(record) == {"/x/ck/model.pt"}
    rank.life.saved.append(SavedTensor("", "b", (1,), "float32", (("parameter", "", "b"),)))
    assert _files_with_state(record) == {"/x/ck/model.pt", "/x/ck/other"}


def test_a_save_that_removes_the_one_before_is_killed_right_after_it() -> None:
    later = _first(
        FileEvent(1.0, "/x/log.txt"), FileEvent(2.0, "/x/old", is_removed=True), FileEvent(3.0, "/x/ck/config.json"),
        FileEvent(4.0, "/x/ck/model.pt"), FileEvent(5.0, "/x/ck/state.json"),
    )  # fmt: skip
    events = later.ranks[0].life.file_events if later.ranks[0].life is not None else []
    state = {"/x/ck/model.pt"}
    assert [one.number for one in save_moments(events, state, {"/x/old/model.pt"}) if not one.torn] == [1, 2, 3]
    assert [one.number for one in save_moments(events, state, {"/x/other/model.pt"}) if not one.torn] == [2, 3]


@pytest.mark.skipif(os.geteuid() != 0, reason="marks of overlays belong to root")
def test_a_folder_that_is_removed_and_made_again_shows_what_was_below(tmp_path: Path) -> None:
    below, tree = tmp_path / "below", tmp_path / "tree"
    for path in (below / "x" / "ck" / "model.pt", tree / "x" / "ck" / "model.pt"):
        path.parent.mkdir(parents=True)
        path.write_text("12345678")
    try:
        os.setxattr(tree / "x" / "ck", OPAQUE, b"y")
    except OSError:
        pytest.skip("this file system has no such marks")
    later = _first(FileEvent(1.0, "/x/ck", is_removed=True), FileEvent(2.0, "/x/ck/model.pt"))
    events = write_events(later, tree, below)
    assert [(event.path, event.is_removed) for event in events] == [("/x/ck", True), ("/x/ck/model.pt", False)]
    restore_tree_at(tree, tmp_path / "before", events, SaveMoment(-1))
    assert not os.listxattr(tmp_path / "before" / "x" / "ck")
    restore_tree_at(tree, tmp_path / "removed", events, SaveMoment(0))
    assert os.getxattr(tmp_path / "removed" / "x" / "ck", OPAQUE) == b"y"
    assert not os.listdir(tmp_path / "removed" / "x" / "ck")


def _life(states: list[StateRow], steps: float, data: DataStatus = "goes-on") -> LifeReport:
    status: CounterStatus = "restored" if steps == 4 else "differs"
    counters = (CounterRow("optimizer", "AdamW", 4, steps, status),)
    return LifeReport(1, 1, (), 4, True, tuple(states), counters, (), data, (), 0)


@pytest.mark.parametrize(
    ("files", "steps", "data", "kind", "why"),
    [
        (("/x/new", "/x/new"), 4, "goes-on", "whole", ""),
        (("/x/old", "/x/old"), 2, "from-the-start", "earlier", ""),
        (("/x/new", "/x/old"), 2, "from-the-start", "mixed", "exp_avg of a, AdamW, training data"),
        (("/x/new", "/x/new"), 4, "from-the-start", "mixed", "training data"),
        (("/x/new", ""), 4, "goes-on", "half", "exp_avg of a"),
        (("/x/old", ""), 2, "from-the-start", "half", "exp_avg of a"),
        (("", ""), 0, "from-the-start", "anew", ""),
    ],
)
def test_which_save_a_resume_is_from(
    files: tuple[str, str], steps: float, data: DataStatus, kind: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(*read: str) -> list[StateRow]:
        named = zip((("parameter", "a", ""), ("optimizer", "a", "exp_avg")), read, strict=True)
        return [
            StateRow(*name, "restored" if file else "not-read", True, read_from=(file,) if file else ())  # type: ignore[arg-type]
            for name, file in named
        ]

    whole, earlier = _life(rows("/x/new", "/x/new"), 4), _life(rows("/x/old", "/x/old"), 2)
    monkeypatch.setattr(interruptions, "life_report", lambda record: _life(rows(*files), steps, data))
    found, said = interruptions._classify_later_resume(_first(), whole, earlier, {"/x/new"})
    assert (found, said.en) == (kind, why)


@pytest.mark.very_slow
@pytest.mark.parametrize(
    "name", ["files.py | ", "files.py atomic | ", "accelerated.py | ", "accelerated.py rotated |  | next save"]
)
def test_a_kill_comes_to_what_it_really_does(name: str, tmp_path: Path) -> None:
    (cell,) = [one for one in CELLS if one.name == name]
    truth = json.loads(TRUTH.read_text(encoding="utf-8"))[cell.name]
    answers = said(cell, tmp_path)
    assert len(answers) >= 2
    assert answers == {file: truth[file] for file in answers}, os.fspath(tmp_path)
