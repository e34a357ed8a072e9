"""Notebooks: the magics and the functions in a real IPython, and in a real kernel by nbclient."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gonogo

BAD = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "gpu"}}}'
LOG = 'step 1\nTraceback (most recent call last):\n  File "t.py", line 2, in <module>\n{}\n'
OOM = LOG.format("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_an_answer_shows_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    log = tmp_path / "train.log"
    log.write_text(OOM)
    answer = gonogo.diagnose_logs(log)
    assert isinstance(answer, gonogo.Report)
    assert repr(answer).lstrip().startswith(answer.verdict.value)
    shown = answer._repr_html_()
    assert "allow-same-origin" not in shown
    page = html.unescape(shown.partition('srcdoc="')[2].partition('"')[0])
    assert page == answer.as_("html")
    (tmp_path / "ds.json").write_text(BAD)
    assert gonogo.check_files(tmp_path / "ds.json").verdict is gonogo.Verdict.NO_GO
    with pytest.raises(gonogo.UserError, match="no such log"):
        gonogo.diagnose_logs(tmp_path / "nothing.log")


TERMINAL = """
from IPython.terminal.interactiveshell import TerminalInteractiveShell
shell = TerminalInteractiveShell.instance()
shell.run_line_magic("load_ext", "gonogo")
shell.run_cell_magic("gonogo", "diagnose", {log!r})
shell.run_line_magic("gonogo", "check ds.json --lang zh")
shell.run_cell_magic("gonogo", "check -- bash a.sh", "torchrun train.py")
shell.run_line_magic("gonogo", "nothing")
"""


def test_the_magics_in_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(BAD)
    done = subprocess.run(
        [sys.executable, "-c", TERMINAL.format(log=OOM)],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "gonogo diagnose" in done.stdout, done.stderr
    assert "gpu-oom" in done.stdout
    assert "gonogo check" in done.stdout
    assert "原因" in done.stdout
    assert "<iframe" not in done.stdout
    assert "gonogo: %%gonogo: the cell itself is the launch script: remove what follows --" in done.stderr
    assert "No such command 'nothing'" in done.stdout


@pytest.mark.slow
def test_a_notebook_shows_a_rehearsal(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    (tmp_path / "train.py").write_text(
        "import torch\nprint(torch.nn.Linear(4, 4).cuda()(torch.ones(1, 4).cuda()).shape)\n"
    )
    cells = [
        "%load_ext gonogo",
        "%%gonogo rehearse --gpus 1xA100-80G --lang en\npython train.py",
        f"import gonogo\nopen('x.log', 'w').write({OOM!r})\ngonogo.diagnose_logs('x.log')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    _, rehearsed, diagnosed = notebook.cells
    pages = [
        html.unescape(output["data"]["text/html"])
        for cell in (rehearsed, diagnosed)
        for output in cell.outputs
        if "text/html" in output.get("data", {})
    ]
    titles = [found[1] for page in pages if (found := re.search(r"<title>(.*?)</title>", page))]
    assert [title.partition(" · ")[2] for title in titles] == ["gonogo rehearse", "gonogo diagnose"], rehearsed.outputs
    assert "gonogo diagnose" in diagnosed.outputs[-1]["data"]["text/plain"]
    assert not list(tmp_path.glob("*.html"))
