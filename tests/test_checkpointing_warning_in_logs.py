"""torch warns that no checkpointed input needs a gradient: that tells where a log ends with it, not where it trains."""

from __future__ import annotations

from pathlib import Path

from gonogo.diagnose.findings import read_failure
from gonogo.finding import Certainty

WARNING = (
    "torch/utils/checkpoint.py:61: UserWarning: None of the inputs have requires_grad=True. Gradients will be None\n"
)


def test_a_log_that_ends_with_the_warning_is_explained(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("***** Running training *****\n  Number of trainable parameters = 4,194,304\n" + WARNING)
    first = read_failure([str(log)]).report().findings[0]
    assert first.hazard == "no-grad-checkpointing-inputs"
    assert first.certainty is Certainty.POSSIBLE  # a warning, and what ended the log is not told


def test_a_run_that_goes_on_to_train_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(WARNING + "{'loss': 1.93, 'grad_norm': 0.7, 'learning_rate': 2e-05, 'epoch': 0.02}\n")
    report = read_failure([str(log)]).report()
    assert "no-grad-checkpointing-inputs" not in [finding.hazard for finding in report.findings]
