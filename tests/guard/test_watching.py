"""What is concluded from what a rank sees: stalls, trends, differences; and the guard's own faults."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
import torch

from gonogo.evidence.guarded.files import read_run
from gonogo.evidence.guarded.records import JoinRecord, RankMemoryRecord, StepRecord
from gonogo.guard.common import faults, memory
from gonogo.guard.common.faults import harmless
from gonogo.guard.common.memory import Trend
from gonogo.guard.common.writer import RecordWriter
from gonogo.guard.injection import GuardOptions
from gonogo.guard.rank.joining import ABSENT, _decide_together_or_alone, find_differences
from gonogo.guard.rank.worker import Guard, StallNotice, StallWatch


def test_a_stall_is_told_at_growing_intervals_and_when_it_ends() -> None:
    watch = StallWatch(10.0)
    told = [(now, watch.due_notice(float(now), 0.0, 0.1, False)) for now in range(100)]
    assert [(now, one) for now, one in told if one] == [
        (10, StallNotice(10.0)),
        (20, StallNotice(20.0, 1)),
        (40, StallNotice(40.0, 2)),
        (80, StallNotice(80.0, 3)),
    ]
    assert watch.due_notice(101.0, 100.5, 0.1, False) == StallNotice(100.5, over=True)
    assert watch.due_notice(105.0, 100.5, 0.1, False) is None
    assert watch.due_notice(111.0, 100.5, 0.1, False) == StallNotice(10.5)


@pytest.mark.parametrize(("median", "loading", "limit"), [(0.1, False, 10), (3.0, False, 30), (0.0, True, 50)])
def test_long_steps_and_loading_take_longer_to_be_a_stall(median: float, loading: bool, limit: int) -> None:
    watch = StallWatch(10.0)
    assert watch.due_notice(limit - 1.0, 0.0, median, loading) is None
    assert watch.due_notice(float(limit), 0.0, median, loading) is not None


def test_steady_growth_is_a_trend() -> None:
    trend = Trend()
    for step in range(30):
        trend.add(step, 1000 + 50 * step + step % 3)
    assert trend.growth_per_step() == pytest.approx(50, abs=1)


@pytest.mark.parametrize(
    "sizes",
    [
        [1000 + 50 * step for step in range(5)],  # too short
        [1000 + min(step, 10) * 100 for step in range(40)],  # a cache that filled
        [1000 + (step % 10) * 100 for step in range(40)],  # up and down
        [1000] * 40,
        [4000 - 50 * step for step in range(40)],
    ],
)
def test_other_shapes_are_no_trend(sizes: list[int]) -> None:
    trend = Trend()
    for step, size in enumerate(sizes):
        trend.add(step, size)
    assert trend.growth_per_step() == 0.0


def test_memory_is_sampled() -> None:
    taken = memory.sample_memory(0)
    available, total = memory.host_memory()
    assert 1 << 20 < taken.host_bytes < total
    assert 0 < available <= total


def test_what_ranks_differ_in() -> None:
    config = {rank: {"lr": "0.1", "stage": "3" if rank != 2 else "2"} for rank in range(4)}
    stated = {
        rank: JoinRecord(0.0, facts={"torch": "2.6", "config": str(rank == 2)}, details={"config": config[rank]})
        for rank in range(4)
    }
    stated[3].facts["NCCL_ALGO"] = "Ring"
    absent, config_differs = find_differences(stated)
    assert (absent.fact, absent.values) == ("NCCL_ALGO", {ABSENT: (0, 1, 2), "Ring": (3,)})
    assert (config_differs.fact, config_differs.values) == ("config", {"False": (0, 1, 3), "True": (2,)})
    assert config_differs.details == {"stage": {"3": (0, 1, 3), "2": (2,)}}


@pytest.fixture
def no_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "off", set())
    monkeypatch.setattr(faults, "_listeners", [])
    faults._announced.clear()


@pytest.mark.usefixtures("no_faults")
def test_a_fault_switches_its_part_off_and_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[str] = []
    faults.add_fault_listener(lambda part, error: heard.append(f"{part}: {error}"))
    calls = []

    @harmless("counting")
    def count(value: int) -> int:
        calls.append(value)
        return 1 // value

    @harmless("another part")
    def other() -> None:
        raise KeyError("x")

    assert [count(1), count(0), count(1), other()] == [1, None, None, None]
    assert calls == [1, 0]
    assert heard == ["counting: integer division or modulo by zero", "another part: 'x'"]
    [line] = capsys.readouterr().err.splitlines()
    assert "counting" in line
    assert "training continues" in line


@pytest.mark.usefixtures("no_faults")
def test_a_record_that_cannot_be_written_is_a_fault_and_the_next_is_written(tmp_path: Path) -> None:
    writer = RecordWriter(str(tmp_path), 0)
    writer.put(StepRecord(1.0, step=object()))  # type: ignore[arg-type]
    writer.write_now(StepRecord(2.0, step=2))
    writer.write_heartbeat(3, "forward", True, 9)
    writer.close()
    [rank] = read_run(tmp_path).ranks
    assert [step.step for step in rank.steps] == [2]
    assert rank.faults[0].part == "a record of StepRecord"
    assert rank.beat is not None
    assert (rank.beat.step, rank.beat.phase, rank.beat.inside, rank.beat.pid) == (3, "forward", True, os.getpid())


@pytest.mark.usefixtures("no_faults")
def test_a_folder_that_cannot_be_written_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    writer = RecordWriter(str(tmp_path / "file" / "folder"), 0)
    assert writer.broken
    writer.write_now(StepRecord(1.0))
    writer.write_heartbeat(1, "step", False, 0)
    assert capsys.readouterr().err.count("gonogo") == 1


def guard_in(folder: Path) -> Guard:
    guard = Guard(str(folder), GuardOptions())
    guard.writer = RecordWriter(str(folder), 0)
    return guard


@pytest.mark.usefixtures("no_faults")
def test_memory_that_will_be_used_up_is_warned_of_once(tmp_path: Path) -> None:
    guard = guard_in(tmp_path)
    guard.steps.begin(0.0)
    for step in range(1, 40):
        guard.step = step
        guard.steps.end_step(2.0 * step)
        held = (3 << 30) + step * (100 << 20)
        guard.steps.store_sample(step, RankMemoryRecord(0.0, held, (16 << 30) - held, held, held, held, 12 << 30))
        guard.write_pending_steps()
    assert guard.writer is not None
    guard.writer.flush()
    [rank] = read_run(tmp_path).ranks
    host, gpu = rank.warnings
    assert (host.what, gpu.what) == ("host-memory", "gpu-memory")
    assert gpu.bytes_per_step == pytest.approx(100 << 20)
    assert gpu.steps_left == pytest.approx(gpu.bytes_left / (100 << 20), abs=0.1)
    assert gpu.step == memory.Trend.NEEDED
    assert len(rank.steps) == 39


@pytest.mark.usefixtures("no_faults")
def test_memory_that_grows_but_lasts_is_not_warned_of(tmp_path: Path) -> None:
    guard = guard_in(tmp_path)
    guard.steps.begin(0.0)
    for step in range(1, 40):
        guard.step = step
        guard.steps.end_step(2.0 * step)
        guard.steps.store_sample(step, RankMemoryRecord(0.0, (3 << 30) + step * (1 << 20), 16 << 30))
        guard.write_pending_steps()
    assert guard.writer is not None
    guard.writer.flush()
    assert read_run(tmp_path).ranks[0].warnings == []


def decisions(late: float, patience: float) -> list[tuple[str, bool]]:
    store = torch.distributed.HashStore()
    found: list[tuple[str, bool]] = []

    def arrive(after: float) -> None:
        time.sleep(after)
        found.append(_decide_together_or_alone(store, 4, patience))

    ranks = [threading.Thread(target=arrive, args=(late if rank == 2 else 0.0,)) for rank in range(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return found


@pytest.mark.parametrize(("late", "decided"), [(0.0, "together"), (0.2, "together"), (1.5, "alone")])
def test_ranks_decide_alike_whether_to_meet(late: float, decided: str) -> None:
    found = decisions(late, 0.8)
    assert {one for one, _ in found} == {decided}
    assert [here for _, here in found].count(True) == 1
