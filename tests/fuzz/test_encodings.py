"""Files and names in encodings other than UTF-8: said where that fails, and no finding is lost over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.check.findings import check
from gonogo.evidence.shell.parse import MAX_SCRIPT
from gonogo.finding import Report, UserError


def checked(*paths: str, command: tuple[str, ...] = ()) -> Report:
    report = check(paths, command, use_installed=False).report
    assert not any("bug in gonogo" in one.why.en for one in report.skipped)
    return report


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GONOGO_DEBUG", raising=False)
    return tmp_path


@pytest.mark.parametrize("encoding", ["utf-8", "gbk"])
def test_a_config_by_a_chinese_name(encoding: str) -> None:
    Path("train.py").write_text("import deepspeed\n")
    Path("launch.sh").write_bytes("# 训练\ndeepspeed train.py --deepspeed 配置/零三.json\n".encode(encoding))
    assert "ds-config-file-not-found" in [finding.hazard for finding in checked("launch.sh").findings]


def test_utf_16_is_said_with_the_way_out() -> None:
    Path("launch.sh").write_bytes("torchrun train.py\n".encode("utf-16"))
    [one] = checked("launch.sh").skipped
    assert one.what.en == "launch.sh"
    assert "the script is in UTF-16, which bash can't read: save it as UTF-8" in one.why.en
    with pytest.raises(UserError, match=r"launch\.sh: the script is in UTF-16"):
        checked(command=("bash", "launch.sh"))


def test_a_script_that_another_sources_is_said_too() -> None:
    Path("env.sh").write_bytes(b"export A=1\n" * (MAX_SCRIPT // 10))
    Path("train.py").write_text("import torch\n")
    Path("launch.sh").write_text("source env.sh\ntorchrun train.py\n")
    [one] = checked("launch.sh").skipped
    assert one.what.en == "launch.sh"
    assert "env.sh, which was not read: the file has 563 KiB" in one.why.en
