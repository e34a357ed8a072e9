"""A silent hang on an extension's build lock: what tells it is that the log ends there."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.diagnose.findings import read_failure
from gonogo.finding import Certainty

FOLDER = "Using /root/.cache/torch_extensions/py310_cu118 as PyTorch extensions root...\n"


def found(tmp_path: Path, text: str) -> list[tuple[str, Certainty]]:
    log = tmp_path / "run.log"
    log.write_text(text)
    return [(finding.hazard, finding.certainty) for finding in read_failure([str(log)]).report().findings]


def test_a_log_that_ends_at_the_folder_waits_for_the_lock(tmp_path: Path) -> None:
    text = "[INFO] [comm.py:652:init_distributed] cdb=None\n" + FOLDER * 4
    assert found(tmp_path, text) == [("torch-extension-build-lock", Certainty.LIKELY)]


def test_what_the_user_saw_may_stand_beside_it(tmp_path: Path) -> None:
    assert found(tmp_path, "训练卡住，一直没有输出：\n" + FOLDER * 2)[:1] == [
        ("torch-extension-build-lock", Certainty.LIKELY)
    ]


@pytest.mark.parametrize(
    "after",
    [
        "Loading extension module cpu_adam...\n",
        "Building extension module cpu_adam...\n",
        "{'loss': 1.23, 'epoch': 0.1}\n",
        "[launch.py:347:sigkill_handler] exits with return code = -9\n",
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    run()\nValueError: no data\n',
    ],
)
def test_a_log_that_goes_on_does_not(tmp_path: Path, after: str) -> None:
    assert "torch-extension-build-lock" not in [name for name, _ in found(tmp_path, FOLDER * 2 + after)]
