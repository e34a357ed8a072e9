"""Packages that gonogo installed in whatever release: what fails in their API says nothing of the run's release."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples

from gonogo.evidence.environment.environment import ADDED_HEADING
from gonogo.evidence.rehearsal.record import Failure, Frame, RankRecord
from gonogo.rehearse.limits.undeclared import explain_undeclared_release, undeclared_packages

USER = Frame("/home/me/models.py", 257, "<module>", "@timm.models.registry.register_model", "user")
CALL = Frame("/home/me/models.py", 9, "f", "net = create_model('vit', pool=1)", "user")
INSIDE = Frame("/v/lib/python3.11/site-packages/timm/models/_factory.py", 9, "create_model", "return f(x)", "library")


@pytest.mark.parametrize(
    ("type_", "message", "frame", "depends"),
    [
        ("AttributeError", "module 'timm.models' has no attribute 'registry'", USER, True),
        ("ImportError", "cannot import name 'container_abcs' from 'timm.layers'", CALL, True),
        ("TypeError", "f() got an unexpected keyword argument 'pool'", INSIDE, True),
        ("AttributeError", "'Config' object has no attribute 'widht'", CALL, False),
        ("RuntimeError", "shapes differ", INSIDE, False),
    ],
)
def test_an_api_that_is_missing_may_be_there_in_another_release(
    type_: str, message: str, frame: Frame, depends: bool
) -> None:
    rank = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="raised", imported={"timm": "1.0.24"})
    rank.failure = Failure(type_, message, (frame,), "load", 0)
    record = samples.rehearsal_record(rank)
    assert explain_undeclared_release(rank, record) is None
    record.undeclared = ["wandb", "timm"]
    why = explain_undeclared_release(rank, record)
    assert (why is not None) is depends
    if why is not None:
        assert "which release of timm the run has" in why.why.en


def test_which_ones_no_file_and_no_option_states(tmp_path: Path) -> None:
    file = tmp_path / "environment.txt"
    file.write_text(f"lmdb\nregex==2024.5.15\n{ADDED_HEADING}\ntimm\neinops==0.8\n")
    asked = ("wandb", "opencv_python==4.9", "regex")
    assert undeclared_packages(asked, file) == ["wandb", "timm"]
    assert undeclared_packages(asked, None) == ["wandb", "regex"]
