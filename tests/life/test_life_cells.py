"""Lives of real libraries beside what they really were on the CPU: what is healthy is GO, and what is lost is named.

``benchmarks/lives.py`` rehearses all of them; here are a few of each kind.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cells import CELLS, TRUTH, Cell
from life_comparison import judged

from gonogo.finding import Verdict

_HERE = (
    *("sharded.py one-rank", "sharded.py by-name | 4 -> 2", "engine.py 2 universal | 2 -> 4", "engine.py 2 | 2 -> 1"),
    *("engine.py 2 universal process", "accelerated.py scheduler", "--bf16 --deepspeed z3.json | "),
    *("--adapter --head", "full2.json", "--save_only_model | ", "--tuner_type lora | "),
)


def test_the_truth_is_of_these_cells() -> None:
    """Each life that a CPU can go through was gone through, and what is lost in a healthy one is nothing."""
    truth = json.loads(TRUTH.read_text(encoding="utf-8"))
    names = [cell.name for cell in CELLS]
    assert len(set(names)) == len(names)
    assert set(truth) <= set(names)
    healthy = [cell for cell in CELLS if cell.verdict is Verdict.GO and cell.name in truth]
    for cell in healthy:
        lost = {kind: truth[cell.name].get(kind) for kind in ("parameters", "buffers", "moments", "error")}
        assert not any(lost.values()), (cell.name, lost)
    assert len([cell for cell in CELLS if cell.verdict is Verdict.GO]) >= 40
    assert len([cell for cell in CELLS if cell.verdict is Verdict.NO_GO]) >= 25


@pytest.mark.very_slow
@pytest.mark.parametrize(
    "cell", [pytest.param(cell, id=cell.name) for cell in CELLS if any(part in cell.name for part in _HERE)]
)
def test_a_cell(cell: Cell, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    wrong, answer = judged(cell, json.loads(TRUTH.read_text(encoding="utf-8")).get(cell.name), folder)
    assert not wrong, answer
