"""Three thousand damaged inputs, each answered within its limits of time and memory: never a traceback, never a hang.

``make fuzz`` runs a hundred thousand. What one finds is mended by its cause, and ``run.py --first N --count 1`` runs it
again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.trial import faults

SEED = 20
_PARTS = 12
_CASES = 3000


@pytest.mark.parametrize("part", range(_PARTS))
def test_whatever_a_file_holds_is_answered(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GONOGO_DEBUG", raising=False)
    found = [str(fault) for fault in faults(SEED, range(part, _CASES, _PARTS), tmp_path / "case", most=5)]
    assert not found, "\n\n".join(found)


@pytest.mark.slow
def test_a_file_made_large_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GONOGO_DEBUG", raising=False)
    found = [str(fault) for fault in faults(SEED, range(100), tmp_path / "case", most=5, grow=True)]
    assert not found, "\n\n".join(found)
