"""Whole reports of every command against what was read and agreed to: ``tests/report/expected/``.

Where a difference is wanted, ``make snapshots`` writes the files anew.
"""

from __future__ import annotations

import pytest
from whole_runs import EXPECTED, RUNS, written


@pytest.mark.parametrize("name", RUNS)
def test_reports_are_as_expected(name: str) -> None:
    for file_name, text in written(name).items():
        assert text == (EXPECTED / file_name).read_text(encoding="utf-8"), f"{file_name}: see `make snapshots`"


def test_nothing_else_lies_there() -> None:
    assert {path.name.partition(".")[0] for path in EXPECTED.iterdir()} == set(RUNS)
