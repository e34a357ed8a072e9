"""Tables of published figures: a run that is published as out of memory is judged by its verdict, not as a figure."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

_SPEC = spec_from_file_location(
    "published_tables", Path(__file__).parents[1] / "benchmarks" / "published" / "tables.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
tables: Any = module_from_spec(_SPEC)
_SPEC.loader.exec_module(tables)


def row(name: str, published: Any) -> dict[str, Any]:
    return {
        "framework": "litgpt", "name": name, "published": published, "means": "allocated", "gpus": "1xA10G",
        "date": "2024-04-26", "source": "https://example.org", "completeness": "A", "said": "peak",
    }  # fmt: skip


ROWS = [row("fits", 10.0), row("too large", tables.OUT_OF_MEMORY), row("passes", tables.OUT_OF_MEMORY)]
RESULTS: dict[str, dict[str, Any]] = {
    "litgpt: fits": {"row": "litgpt: fits", "verdict": "GO", "allocated": 10.1, "seconds": 9},
    "litgpt: too large": {
        "row": "litgpt: too large", "verdict": "NO-GO", "outcome": "out-of-memory", "allocated": 21.0, "seconds": 9,
    },
    "litgpt: passes": {"row": "litgpt: passes", "verdict": "GO", "allocated": 12.0, "seconds": 9},
}  # fmt: skip


def test_only_a_figure_is_compared_with_a_figure() -> None:
    assert [one.row["name"] for one in tables.compared(ROWS, RESULTS)] == ["fits"]


@pytest.mark.parametrize(("language", "ended"), [("en", "out of GPU memory"), ("zh", "GPU 显存不足")])
def test_a_run_without_memory_is_told_by_its_verdict(language: str, ended: str) -> None:
    _, _, too_large, passes = tables.verdicts(ROWS, RESULTS, language).splitlines()
    assert f"| NO-GO | {ended} |" in too_large
    assert "| GO | " in passes
    assert ended not in passes


def test_a_run_without_memory_is_listed_once_rehearsed_or_not() -> None:
    assert len(tables.not_rehearsed(ROWS, RESULTS, "en").splitlines()) == 2
    assert "too large" not in tables.not_rehearsed(ROWS, {}, "en")
    assert "too large (1xA10G) |  | not rehearsed yet |" in tables.verdicts(ROWS, {}, "en")


def test_the_runner_prints_how_it_ended() -> None:
    said = tables.line(ROWS[1], RESULTS["litgpt: too large"])
    assert said == "litgpt: too large: out of memory; NO-GO, out-of-memory"


def test_the_first_answer_stands_beside_a_later_one() -> None:
    later = {**RESULTS["litgpt: fits"], "first": {"verdict": "GO", "allocated": 10.8}}
    (told,) = tables.every_row(tables.compared(ROWS[:1], {"litgpt: fits": later}), "en").splitlines()[2:]
    assert "| +1.0 % (first +8.0 %) |" in told
    alike = {**later, "first": {"verdict": "CANNOT-TELL"}}
    assert "| +1.0 % |" in tables.every_row(tables.compared(ROWS[:1], {"litgpt: fits": alike}), "en")
