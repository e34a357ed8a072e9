"""The table of architectures: made from its rows, with no NO-GO that isn't shown true, and a reason for each doubt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmark_modules import benchmark

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def table() -> Any:
    return benchmark("architecture_table")


@pytest.fixture(scope="module")
def rows(table: Any) -> list[dict[str, Any]]:
    return list(table.Rows.read(ROOT / "benchmarks" / "architectures.jsonl").by_case.values())


@pytest.mark.parametrize("name", ["architectures.md", "architectures.zh-CN.md"])
def test_the_pages_count_the_rows(rows: list[dict[str, Any]], name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    for which in ("published", "default"):
        chosen = [row for row in rows if row["set"] == which]
        verdicts = [sum(row["verdict"] == one for row in chosen) for one in ("GO", "NO-GO", "CANNOT-TELL")]
        classes = len({(row["model_type"], row["class"]) for row in chosen})
        assert f"| {' | '.join(map(str, [classes, len(chosen), *verdicts]))} |" in text


def test_the_tables_have_all_rows(table: Any, rows: list[dict[str, Any]]) -> None:
    for language in ("en", "zh"):
        lines = [line for which in ("published", "default") for line in table.table(rows, which, language).splitlines()]
        assert len([line for line in lines if line.startswith("| ")]) == len(rows) + 4


def test_at_least_120_were_rehearsed(rows: list[dict[str, Any]]) -> None:
    assert len({(row["model_type"], row["class"]) for row in rows if row["verdict"] != "CANNOT-TELL"}) >= 120


def test_every_no_go_was_shown_true(table: Any, rows: list[dict[str, Any]]) -> None:
    unproven = [row["class"] for row in rows if row["verdict"] == "NO-GO" and not table.is_proven(row)]
    assert unproven == []


def test_every_doubt_has_its_reason(table: Any, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["verdict"] == "CANNOT-TELL":
            assert len(table.reason(row, "en")) > 20, row["class"]
