"""The benchmark of predicted against real memory: how it counts, what it keeps, and what the documents say of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmark_modules import benchmark
from operators_in_python import path_without_compiling

ROOT = Path(__file__).parent.parent
memory, cells = benchmark("memory"), benchmark("memory_cells")
Cell, all_cells = cells.Cell, cells.all_cells
GONOGO, EXTENDED, DEEPSPEED, ACCELERATE = memory.TOOLS


def row(truth: int, gonogo: int, others: int, kind: str = "cpu") -> dict[str, Any]:
    return {
        "truth": {"kind": kind, "accelerator": truth, "reserved": 2 * truth, "host": 10},
        "predicted": {"accelerator": gonogo, "allocated": gonogo, "reserved": 2 * gonogo, "host": 11},
        "deepspeed": {"accelerator": others, "host": 0},
        "accelerate": {"accelerator": others},
        "cell": {"optimizer": "cpu"},
    }


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_errors_are_counted(kind: str) -> None:
    found = {line[0]: line[1:] for line in memory.summary([row(1000, 1010, 600, kind), row(1000, 1000, 2500, kind)])}
    count, median, worst, *_ = found[GONOGO]
    assert (count, median, worst) == (2, pytest.approx(0.005), pytest.approx(0.01))
    assert EXTENDED not in found
    median, worst, false_fits, of_small, false_refusals, of_large = found[DEEPSPEED][1:]
    if kind == "cpu":
        assert (median, worst) == (pytest.approx(0.95), pytest.approx(1.5))
        assert false_fits == sum(share >= 0.6 for share in memory.TOO_SMALL)
        assert false_refusals == sum(share < 2.5 for share in memory.LARGE_ENOUGH)
    assert (of_small, of_large) == (2 * len(memory.TOO_SMALL), 2 * len(memory.LARGE_ENOUGH))


def test_too_low_a_prediction_is_a_false_fit_beyond_its_band() -> None:
    band = memory.UNCERTAINTY_BY_SOURCE["rehearsed"]
    within, beyond = row(1000, round(1000 * (1 - band / 2)), 0), row(1000, 900, 0)
    fits = {line[0]: line[4] for line in memory.summary([within])}
    assert fits[GONOGO] == 0
    assert {line[0]: line[4] for line in memory.summary([beyond])}[GONOGO] > 0


def test_host_memory_of_what_offloads() -> None:
    assert memory.worst_host([row(1, 1, 1)]) == pytest.approx(0.1)


def test_cells_have_names_of_their_own() -> None:
    names = [cell.name for cell in all_cells()]
    assert len(names) == len(set(names)) >= 30


def test_cells_cover_what_is_planned() -> None:
    found = all_cells()
    assert {cell.zero for cell in found} == {0, 1, 2, 3}
    assert {(cell.optimizer, cell.parameters) for cell in found} == {("gpu", "gpu"), ("cpu", "gpu"), ("cpu", "cpu")}
    assert {cell.checkpointing for cell in found} == {False, True}
    assert {cell.tune for cell in found} == {"full", "lora", "freeze-vision"}
    assert len({cell.model for cell in found}) >= 5
    assert len({cell.micro_batch for cell in found}) >= 3
    assert len({cell.seq_len for cell in found}) >= 3
    assert {cell.world for cell in found} == {1, 2, 4}


def test_kept_row_replaces_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "RESULTS", tmp_path / "memory.jsonl")
    first = {"name": "a", "truth": {"device": "x"}, "versions": {"torch": "1"}, "date": "1"}
    for one in (first, {**first, "name": "b"}, {**first, "date": "2"}, {**first, "versions": {"torch": "2"}}):
        memory.keep(one)
    assert [(one["name"], one["date"], one["versions"]["torch"]) for one in memory.rows()] == [
        ("a", "2", "1"), ("b", "1", "1"), ("a", "1", "2"),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def on_cpu() -> list[dict[str, Any]]:
    return [kept for kept in memory.rows() if kept["truth"]["kind"] == "cpu"]


def test_every_cell_was_measured(on_cpu: list[dict[str, Any]]) -> None:
    assert {kept["name"] for kept in on_cpu} == {cell.name for cell in all_cells()}
    for kept in on_cpu:
        assert Cell(**kept["cell"]).name == kept["name"]
        assert {"device", "kind", "accelerator", "host"} <= set(kept["truth"])
        assert {"torch", "deepspeed", "transformers"} <= set(kept["versions"])


def test_predictions_reach_what_is_promised(on_cpu: list[dict[str, Any]]) -> None:
    found = {line[0]: line for line in memory.summary(on_cpu)}
    for tool, most in (
        (GONOGO, memory.UNCERTAINTY_BY_SOURCE["rehearsed"]),
        (EXTENDED, memory.UNCERTAINTY_BY_SOURCE["extended"]),
    ):
        _, count, median, worst, false_fits, *_ = found[tool]
        assert count >= 30
        assert median <= 0.03
        assert worst <= min(most, 0.10)
        assert false_fits == 0
    assert memory.worst_host(on_cpu) <= 0.01


@pytest.mark.parametrize("document", ["docs/plan.md", "docs/plan.zh-CN.md"])
def test_document_says_what_was_measured(document: str, on_cpu: list[dict[str, Any]]) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert memory.markdown(on_cpu, chinese=".zh-CN." in document) in text
    assert f" {len(on_cpu)} " in text
    for source, band in memory.UNCERTAINTY_BY_SOURCE.items():
        assert f"± {band:.0%}".replace("%", " %") in text, source


def test_table_is_printed_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/memory.py")], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "CPU truth" in done.stdout
    assert DEEPSPEED in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(Cell("llama", 2, checkpointing=True), marks=pytest.mark.very_slow),
        pytest.param(Cell("llama", 3, tune="lora", world=2), marks=pytest.mark.very_slow),
    ],
    ids=lambda cell: cell.name,
)
def test_cell_is_predicted_as_it_really_is(cell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained for real, here and now, with DeepSpeed's operators in Python: to compile them takes minutes."""
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", path_without_compiling())
        real = memory.truth(cell)
    with memory.Rehearsals("H100-80G") as rehearsals:
        said = memory.predicted(rehearsals, cell)
    assert said["accelerator"] == pytest.approx(real["accelerator"], rel=0.01), json.dumps([real, said])
    assert said["host"] == pytest.approx(real["host"], rel=0.03)
