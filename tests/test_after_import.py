"""What is done to a module when it is imported, or while it is."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gonogo.virtual.patching.after_import import after_import, import_within


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "met_once.py").write_text("import sys\nseen = list(sys.within)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "within", [], raising=False)
    yield "met_once"
    sys.modules.pop("met_once", None)


@contextlib.contextmanager
def noted() -> Iterator[None]:
    sys.within.append("inside")  # type: ignore[attr-defined]
    yield
    sys.within.append("outside")  # type: ignore[attr-defined]


def test_a_module_is_executed_within_the_context_and_the_action_follows(module: str) -> None:
    names: list[str] = []
    undo = [import_within(module, noted), after_import(module, lambda found: names.append(found.__name__))]
    assert importlib.import_module(module).seen == ["inside"]
    assert sys.within == ["inside", "outside"]  # type: ignore[attr-defined]
    assert names == [module]
    for forget in undo:
        forget()


def test_what_is_taken_back_does_nothing(module: str) -> None:
    import_within(module, noted)()
    assert importlib.import_module(module).seen == []
