"""Every command that has a report writes it in every format; pages are refused those that are for findings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import test_sarif

from gonogo.report import FORMATS, PAGE_FORMATS

LOG = """Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
    import deepspeed
ModuleNotFoundError: No module named 'deepspeed'
"""


def gonogo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gonogo", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("format_name", FORMATS)
def test_diagnose_writes_every_format(format_name: str, tmp_path: Path) -> None:
    (tmp_path / "训练 1.log").write_text(LOG, encoding="utf-8")
    output = tmp_path / "report"
    done = gonogo(tmp_path, "diagnose", "训练 1.log", "--lang", "en", "--format", format_name, "--output", str(output))
    assert done.returncode in (1, 3), done.stderr
    assert done.stdout == ""
    written = output.read_text(encoding="utf-8")
    if format_name == "sarif":
        log = json.loads(written)
        test_sarif.validator().validate(log)
        place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "%E8%AE%AD%E7%BB%83%201.log"
        assert place["region"]["startLine"] == 4
    elif format_name == "github":
        assert "file=训练 1.log,line=4," in written
        assert written.splitlines()[-1].startswith("gonogo diagnose: ")
    elif format_name == "junit":
        suite = ElementTree.fromstring(written.encode()).find("testsuite")
        assert suite is not None
        assert suite.get("name") == "gonogo diagnose"
    else:
        assert "训练 1.log" in written


@pytest.mark.parametrize("format_name", sorted(set(FORMATS) - set(PAGE_FORMATS)))
@pytest.mark.parametrize("command", [("explain", "program-raises"), ("hazards",)], ids=lambda words: words[0])
def test_a_page_is_refused_in_one_line(command: tuple[str, ...], format_name: str, tmp_path: Path) -> None:
    done = gonogo(tmp_path, *command, "--format", format_name, "--lang", "en")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "text, json, markdown" in done.stderr
