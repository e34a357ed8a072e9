"""Notebooks as files: read by check as the Python of their cells, and rehearsed where they lie."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gonogo.check.findings import check
from gonogo.evidence.notebook import notebook_to_python
from gonogo.finding import UserError
from gonogo.rehearse.launch.queued import with_job_from_file
from gonogo.rehearse.request import RehearsalRequest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report_of(folder: Path, command: str, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", command, "--format", "json", *words],
        cwd=folder, capture_output=True, text=True, timeout=120, env={**os.environ, "LANG": "C"},
    )  # fmt: skip
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def notebook(*cells: list[str]) -> dict[str, object]:
    made = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": cell} for cell in cells
    ]
    return {
        "cells": [{"cell_type": "markdown", "metadata": {}, "source": ["import no"]}, *made],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def test_a_notebook_is_its_python_line_by_line() -> None:
    cells = (
        ["%matplotlib inline\n", "import torch\n", "if True:\n", "    !nvidia-smi\n", "torch?"],
        ["%%bash\n", "rm -rf x"],
        ["x = 1\n", "y = '\u5206\u7247'"],
    )
    for text in (json.dumps(notebook(*cells), indent=1), json.dumps(notebook(*cells), indent=1, ensure_ascii=False)):
        python = (notebook_to_python(text.encode()) or b"").decode()
        compile(python, "notebook", "exec")
        lines, written = python.splitlines(), text.splitlines()
        for code in ("import torch", "x = 1"):
            assert code in written[lines.index(code)]
        assert "rm -rf" not in python
        assert "import no" not in python
    assert (notebook_to_python(json.dumps(notebook(*cells)).encode()) or b"").count(
        b"\n"
    ) == 7  # all on one line of the file
    for wrong in (b"", b"{}", b"[1]", b'{"cells": 3}', b"\xff", b"[" * 9000):
        assert notebook_to_python(wrong) is None


def test_notebooks_are_checked_where_they_are_named_and_rehearsed(project: Path) -> None:
    config = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 9}}'
    code = ["import deepspeed\n", "engine, *_ = deepspeed.initialize(model=model, config='ds.json')\n"]
    (project / "ds.json").write_text(config)
    (project / "tune.ipynb").write_text(json.dumps(notebook(["!pip install deepspeed"], code), indent=1))
    report = report_of(project, "check", "tune.ipynb")
    assert "scripts: tune.ipynb" in report["covered"]
    for command in (["tune.ipynb"], ["jupyter", "nbconvert", "--execute", "--to", "notebook", "tune.ipynb"]):
        asked = with_job_from_file(RehearsalRequest(command)).command
        assert asked == ["env", "-C", str(project), "python", str(project / "tune.ipynb")]
    (project / "broken.ipynb").write_text("{")
    for wrong, why in (
        ("broken.ipynb", "is not a Jupyter notebook"),
        ("none.ipynb", "no such file"),
        ("none.yaml", "no such file"),
    ):
        with pytest.raises(UserError, match=why):
            with_job_from_file(RehearsalRequest([wrong]))
        with pytest.raises(UserError, match=why):
            check([wrong])


@pytest.mark.slow
def test_what_a_rehearsed_notebook_raises_is_told_at_its_line(project: Path) -> None:
    cells = (
        ["%matplotlib inline\n", "import helper\n"],
        ["def train():\n", "    raise ValueError(helper.WORD)\n"],
        ["train()\n"],
    )
    (project / "helper.py").write_text("WORD = 'no rows'\n")
    (project / "tune.ipynb").write_text(json.dumps(notebook(*cells), indent=1))
    (finding,) = report_of(project.parent, "rehearse", f"{project.name}/tune.ipynb")["findings"]
    wanted = (project / "tune.ipynb").read_text().splitlines().index('    "    raise ValueError(helper.WORD)\\n"') + 1
    spans = [(span["path"], span["line"], span["text"]) for span in finding["spans"]]
    assert (f"{project.name}/tune.ipynb", wanted, "raise ValueError(helper.WORD)") in spans
