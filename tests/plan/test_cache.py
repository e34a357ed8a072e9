"""Rehearsals are kept for the next plan: keyed by all that they hang on, and safe with several processes."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from plan_facts import model_in, request

from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.finding import UserError
from gonogo.trials.plan import cache
from gonogo.trials.plan.measure import Measurement, Meter
from gonogo.trials.plan.request import PlanRequest, check_packages
from gonogo.trials.plan.strategy import Family, Strategy
from gonogo.virtual.measuring.jobs import Measured, ModelFacts

CELL = Measurement(Strategy(Family(2), False, 1, 2), 0, 128, 8)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GONOGO_CACHE_SIZE", "1G")


def key(asked: PlanRequest, folder: Path, cell: Measurement = CELL) -> str:
    folder.mkdir(exist_ok=True)
    meter = Meter(asked, folder, lambda done, every: None)
    return cache.measurement_key(meter._make_job("cell", cell), asked.machine.accelerator, folder)


def test_the_place_of_the_model_and_of_the_scratch_folder_do_not_matter(tmp_path: Path) -> None:
    here, there = request(model_in(tmp_path / "here")), request(model_in(tmp_path / "there"))
    for family in (Family(2), Family(3, "nvme", "nvme")):
        cell = replace(CELL, strategy=Strategy(family, False, 1, 2))
        assert key(here, tmp_path / "one", cell) == key(there, tmp_path / "two", cell)


def _another_model(asked: PlanRequest, folder: Path) -> PlanRequest:
    return replace(asked, model=model_in(folder / "other", hidden_size=32))


CHANGES: dict[str, Callable[[PlanRequest, Path], PlanRequest]] = {
    "model": _another_model,
    "tune": lambda asked, folder: replace(asked, tune="lora"),
    "rank": lambda asked, folder: replace(asked, lora_rank=4),
    "dtype": lambda asked, folder: replace(asked, dtype="fp16"),
    "attention": lambda asked, folder: replace(asked, attention="eager"),
    "accelerator": lambda asked, folder: request(asked.model, "8xH200"),
    "ranks of a node": lambda asked, folder: request(asked.model, "4xA100-80G", 2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_planned_matters(name: str, tmp_path: Path) -> None:
    asked = request(model_in(tmp_path / "model"))
    assert key(asked, tmp_path / "one") != key(CHANGES[name](asked, tmp_path), tmp_path / "two")


@pytest.mark.parametrize(
    "change",
    [{"seq_len": 256}, {"world_size": 16}, {"depth": 1}, {"steps": 3}, {"real": True},
     {"strategy": Strategy(Family(3), False, 1, 2)}, {"strategy": Strategy(Family(2), True, 1, 2)},
     {"strategy": Strategy(Family(2), False, 2, 2)}, {"strategy": Strategy(Family(2), False, 1, 1)}],
    ids=str,
)  # fmt: skip
def test_what_is_rehearsed_matters(change: dict[str, Any], tmp_path: Path) -> None:
    asked = request(model_in(tmp_path / "model"))
    assert key(asked, tmp_path / "one") != key(asked, tmp_path / "two", replace(CELL, **change))


def test_versions_and_the_environment_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request(model_in(tmp_path / "model"))
    found = {key(asked, tmp_path / "scratch")}
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    found.add(key(asked, tmp_path / "scratch"))
    monkeypatch.setattr(cache, "_package_versions", lambda: {"torch": "another"})
    found.add(key(asked, tmp_path / "scratch"))
    assert len(found) == 3


def kept(number: int) -> bytes:
    """A record, long enough that writing it takes several steps."""
    return json.dumps(
        {"record": {"rank": number, "local_rank": 0, "device": "cuda:0", "outcome": "completed",
                    "events": [f"event of {number}"] * 20_000}, "work": [], "peaks": {}}
    ).encode()  # fmt: skip


def _write_and_read(number: int, wrong: Any) -> None:
    for _ in range(20):
        cache.cache_answer("key", kept(number))
        found = cache.read_cached_answer("key", Measured)
        if found is None or set(found.record.events) != {f"event of {found.record.rank}"}:
            wrong.value += 1


def test_two_processes_never_read_half_an_answer() -> None:
    context = multiprocessing.get_context("fork")
    wrong = context.Value("i", 0)
    processes = [context.Process(target=_write_and_read, args=(number, wrong)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert wrong.value == 0
    assert [path.name for path in cache.answer_cache().folder.iterdir()] == ["key.json"]


def test_what_can_not_be_read_is_rehearsed_again() -> None:
    cache.answer_cache().folder.mkdir(parents=True)
    (cache.answer_cache().folder / "key.json").write_bytes(kept(1)[:100])
    assert cache.read_cached_answer("key", Measured) is None
    assert cache.read_cached_answer("another", ModelFacts) is None


def test_what_is_kept_needs_no_process(tmp_path: Path) -> None:
    asked = request(model_in(tmp_path / "model"))
    cache.cache_answer(key(asked, tmp_path / "scratch"), kept(0))
    with Meter(asked, tmp_path / "scratch", lambda done, every: None) as meter:
        (found,) = meter.measure([CELL])
        assert isinstance(found, Measured)
        assert isinstance(found.record, RankRecord)
        assert (meter.rehearsed, meter.reused, meter._process) == (0, 1, None)


def test_a_package_that_tuning_needs_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "bitsandbytes" else object())
    check_packages("lora")
    with pytest.raises(UserError, match=r"--tune qlora needs bitsandbytes, which is not installed .*: pip install"):
        check_packages("qlora")
