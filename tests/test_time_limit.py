"""A rule that doesn't come to an end on a script is stopped, and that is said; the others are asked."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from gonogo.check.findings import check
from gonogo.check.time_limit import TimeLimitReached, time_limit
from gonogo.finding import Verdict
from gonogo.hazards.autograd.all_parameters_frozen import AllParametersFrozen


def endless() -> None:
    for _ in itertools.count():
        pass


def test_what_does_not_end_is_stopped() -> None:
    with pytest.raises(TimeLimitReached), time_limit(0.05):
        endless()


def test_a_rule_that_is_too_slow_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AllParametersFrozen, "in_script", lambda *given: endless())
    (tmp_path / "train.py").write_text("import torch\nfrom transformers import Trainer\nTrainer(model).train()\n")
    monkeypatch.chdir(tmp_path)
    report = check(["train.py"], use_installed=False).report
    [one] = report.skipped
    assert one.what.en == "all-parameters-frozen"
    assert one.why.en == "it took more than 1 s of processor time on train.py, and was stopped"
    assert report.verdict is Verdict.CANNOT_TELL
