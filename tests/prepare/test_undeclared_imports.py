"""Packages that a program imports and no list of the project names: all of them are added when the first is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.rehearsal.record import Failure, RankRecord
from gonogo.prepare.prepare import EnvironmentOptions, parse_prepare_options, prepare


def test_when_one_is_missing_the_others_are_added_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.txt").write_text("no-such-one==1\n")
    imports = "import torch\nimport regex\nimport helper\nimport lmdb as db\nimport nobody_knows\nimport flash_attn\n"
    (tmp_path / "train.py").write_text(f"{imports}try:\n    import gdown\nexcept ImportError:\n    pass\n")
    (tmp_path / "helper.py").write_text("import jieba.analyse\nfrom PIL import Image\n")
    workers = iter([Failure("ModuleNotFoundError", "No module named 'regex'", (), "load", 0), None])

    def probe() -> RankRecord:
        failure = next(workers)
        record = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="completed" if failure is None else "raised")
        record.failure = failure
        return record

    done = prepare(
        ["python", "train.py"], parse_prepare_options(8, None, []), EnvironmentOptions(None, None, ()),
        write=True, probe=probe,
    )  # fmt: skip
    assert sorted(done.packages.added) == ["jieba", "lmdb", "pillow", "regex"]
