"""Every finding of every case of every hazard, against what was read and agreed to: each folder's ``expected.txt``.

Where a difference is wanted, ``make snapshots`` writes the files anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from snapshots import FIXTURES, cases_of, snapshot_of

FOLDERS = sorted(path for path in FIXTURES.iterdir() if path.is_dir())


@pytest.fixture(autouse=True)
def faults_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_DEBUG", "1")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_findings_are_as_expected(folder: Path) -> None:
    assert cases_of(folder)
    assert snapshot_of(folder) == (folder / "expected.txt").read_text(encoding="utf-8"), "see `make snapshots`"
