"""Records outlive the rank that wrote them, cut lines and all."""

from __future__ import annotations

from pathlib import Path

from gonogo.evidence.guarded.files import (
    HEARTBEAT_MAGIC,
    HEARTBEAT_STRUCT,
    encode_record,
    heartbeat_path,
    read_run,
    records_path,
)
from gonogo.evidence.guarded.records import EndRecord, ExceptionRecord, StartRecord, StepRecord


def test_records_come_back(tmp_path: Path) -> None:
    records = [
        StartRecord(1.0, rank=1, world_size=2, versions={"torch": "2.6"}),
        StepRecord(2.0, step=3, seconds=0.5),
        ExceptionRecord(3.0, type="ValueError", message="no\nway", fatal=True),
        EndRecord(4.0, reason="exception", status=1, step=3),
    ]
    Path(records_path(str(tmp_path), 1)).write_bytes(b"".join(map(encode_record, records)))
    (tmp_path / "options.json").write_text("{}")
    run = read_run(tmp_path)
    [rank] = run.ranks
    assert [rank.start, *rank.steps, *rank.exceptions, rank.end] == records
    assert (rank.rank, run.world_size, rank.last_step, rank.last_time) == (1, 2, 3, 4.0)
    assert run.rank(1) is rank
    assert run.rank(0) is None


def test_what_a_killed_rank_left_is_read(tmp_path: Path) -> None:
    whole = encode_record(StartRecord(1.0)) + encode_record(StepRecord(2.0, step=7))
    Path(records_path(str(tmp_path), 0)).write_bytes(
        whole + b'{"kind": "from-the-future"}\n{"kind": "\xff"}\n' + encode_record(EndRecord(3.0))[:9]
    )
    beat = HEARTBEAT_STRUCT.pack(HEARTBEAT_MAGIC, 2.5, 8, 2, 1, 4321, 99)
    Path(heartbeat_path(str(tmp_path), 0)).write_bytes(beat + bytes(4096 - len(beat)))
    [rank] = read_run(tmp_path).ranks
    assert rank.unreadable == 3
    assert rank.end is None
    assert rank.beat is not None
    assert (rank.beat.phase, rank.beat.step, rank.beat.inside, rank.beat.collectives) == ("forward", 8, True, 99)
    assert (rank.last_step, rank.last_time) == (8, 2.5)


def test_a_restarted_rank_has_its_earlier_lives_apart(tmp_path: Path) -> None:
    lives = (
        encode_record(StartRecord(1.0))
        + encode_record(ExceptionRecord(2.0, type="OSError"))
        + encode_record(StartRecord(3.0, restarts=1))
    )
    Path(records_path(str(tmp_path), 0)).write_bytes(lives)
    [rank] = read_run(tmp_path).ranks
    assert rank.start is not None
    assert rank.start.restarts == 1
    assert [raised.type for raised in rank.earlier[0].exceptions] == ["OSError"]


def test_a_folder_without_ranks(tmp_path: Path) -> None:
    (tmp_path / "rank-0.beat").write_bytes(b"torn")
    assert read_run(tmp_path).ranks == []


def test_other_programs_beside_the_training_are_left_out(tmp_path: Path) -> None:
    helper = encode_record(StartRecord(1.0)) + encode_record(EndRecord(2.0))
    training = (
        encode_record(StartRecord(3.0, pid=7))
        + encode_record(StepRecord(4.0, step=1))
        + encode_record(EndRecord(5.0, step=1))
    )
    Path(records_path(str(tmp_path), 0)).write_bytes(helper + training + helper)
    [rank] = read_run(tmp_path).ranks
    assert rank.start is not None
    assert rank.start.pid == 7
    assert rank.earlier == []
