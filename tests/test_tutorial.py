"""The tutorial: its project, as a reader types it in, is answered as the document shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`([\w.]+)`[:：]\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown_after(text: str, command: str) -> list[str]:
    """The lines of the output that the document shows for a command."""
    output = FENCE.search(text[text.index(f"```sh\n{command}\n```") + 1 + len(command) + 6 :])
    assert output is not None
    return [line for line in output[2].splitlines() if line != "…"]


@pytest.mark.parametrize(("document", "language"), [("tutorial.md", "en"), ("tutorial.zh-CN.md", "zh")])
def test_check_and_fix_print_what_the_tutorial_shows(tmp_path: Path, document: str, language: str) -> None:
    text = (DOCS / document).read_text(encoding="utf-8")
    files = dict(FILE.findall(text))
    assert set(files) == {"train.py", "ds_config.json", "launch.sh"}
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    for words in ("check", "check --fix"):
        command = [sys.executable, "-m", "gonogo", *words.split(), "--lang", language, "--", "bash", "launch.sh"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=None, timeout=120)
        printed = [line.rstrip() for line in (done.stdout + done.stderr).splitlines()]
        missing = [line for line in shown_after(text, f"gonogo {words} -- bash launch.sh") if line not in printed]
        assert missing == [], done.stdout
