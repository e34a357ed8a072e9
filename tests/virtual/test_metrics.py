"""Metrics whose code lies on the hub answer in a rehearsal, and the report says that it is no measurement."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gonogo.virtual.sandbox import metrics

LIBRARY = """\
def load(path, *args, **kwargs):
    raise FileNotFoundError(f"Module '{path}' doesn't exist on the Hugging Face Hub either.")
"""


@pytest.fixture
def assumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    (tmp_path / "evaluate").mkdir()
    (tmp_path / "evaluate" / "__init__.py").write_text("from .loading import load\n")
    (tmp_path / "evaluate" / "loading.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "evaluate"]:
        monkeypatch.delitem(sys.modules, name)
    told: list[str] = []
    undo = metrics.install(lambda what, kind="": told.append(what.en))
    yield told
    undo()
    for name in ("evaluate", "evaluate.loading"):
        sys.modules.pop(name, None)


def test_a_metric_of_the_hub_answers(assumed: list[str]) -> None:
    import evaluate  # type: ignore[import-not-found]

    metric = evaluate.load("glue", "mrpc")
    metric.add_batch(predictions=[1], references=[1])
    assert metric.compute()["accuracy"] == metric.compute()["spearmanr"] == 0.5
    assert evaluate.load("wer").compute(predictions=["a"], references=["a"]) == 0.5
    assert "glue" in assumed[0]


def test_another_name_is_asked_for_in_vain(assumed: list[str]) -> None:
    import evaluate

    with pytest.raises(FileNotFoundError):
        evaluate.load("acuracy")
    assert not assumed
