"""The skill file that agents read: put into place, level in both languages, its commands run as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gonogo.cli.skills import install_skill, skill_text
from gonogo.finding import UserError

TRAIN = """\
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 8, device=device)).sum().backward()
    optimizer.step()
"""


def gonogo(folder: Path, *words: str, timeout: float = 500) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gonogo", *words], cwd=folder, capture_output=True, text=True, timeout=timeout,
        env={
            **os.environ,
            "LANG": "C",
            "HOME": str(folder / "home"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
    )  # fmt: skip


def commands(text: str) -> list[str]:
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


def test_both_languages_say_the_same() -> None:
    english, chinese = skill_text("en"), skill_text("zh")
    assert commands(english) == commands(chinese)
    assert [line.split(" ")[0] for line in english.splitlines() if line.startswith("#")] == [
        line.split(" ")[0] for line in chinese.splitlines() if line.startswith("#")
    ]
    assert english.count("\n| ") == chinese.count("\n| ")
    assert english.count("\n- ") == chinese.count("\n- ")
    for text in (english, chinese):
        assert len(text.splitlines()) < 90
        assert re.match(r"---\nname: gonogo\ndescription: [^\n]{60,1024}\n---\n", text)
        assert "|| true" in text


def test_every_command_and_option_that_it_names_is_there() -> None:
    named = set(re.findall(r"`gonogo ([a-z]+)", skill_text("en")))
    assert {"check", "prepare", "rehearse", "cure", "plan", "run", "diagnose", "explain", "gpus"} <= named
    for command in named:
        done = gonogo(Path(), command, "--help")
        assert done.returncode == 0, command


def test_its_commands_that_read_run_as_they_stand(tmp_path: Path) -> None:
    run_as_they_stand(tmp_path, {"check", "diagnose", "explain"})


@pytest.mark.very_slow
def test_all_its_commands_run_as_they_stand(tmp_path: Path) -> None:
    run_as_they_stand(tmp_path, None)


def run_as_they_stand(tmp_path: Path, names: set[str] | None) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "launch.sh").write_text("torchrun --nproc_per_node 2 train.py\n")
    (tmp_path / "train.log").write_text("step 1 loss 2.0\nstep 2 loss 1.9\n")
    for command in commands(skill_text("en")):
        program, *words = shlex.split(command)
        assert program == "gonogo"
        if names is not None and words[0] not in names:
            continue
        done = gonogo(tmp_path, *words)
        whole = 3 if words[0] == "diagnose" else 0  # a log without a failure tells nothing
        assert done.returncode == whole, (command, done.stdout, done.stderr)


def test_installed_once_and_never_over_what_was_changed(tmp_path: Path) -> None:
    done = gonogo(tmp_path, "skills", "install", "--lang", "en")
    path = tmp_path / ".claude/skills/gonogo/SKILL.md"
    assert (done.returncode, done.stdout) == (0, "wrote .claude/skills/gonogo/SKILL.md\n")
    assert path.read_text() == skill_text("en")
    assert "already exists" in gonogo(tmp_path, "skills", "install", "--lang", "en").stdout
    path.write_text("mine")
    refused = gonogo(tmp_path, "skills", "install", "--lang", "en")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1
    assert path.read_text() == "mine"
    assert gonogo(tmp_path, "skills", "install", "--force", "--lang", "zh").returncode == 0
    assert path.read_text() == skill_text("zh")
    assert gonogo(tmp_path, "skills", "install", "--global", "--target", "codex").returncode == 0
    assert (tmp_path / "home/.codex/skills/gonogo/SKILL.md").is_file()


def test_shown_and_refused_in_one_line(tmp_path: Path) -> None:
    assert gonogo(tmp_path, "skills", "show", "--lang", "zh").stdout == skill_text("zh")
    done = gonogo(tmp_path, "skills", "remove")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError):
        install_skill("text", str(tmp_path / "file"), install_globally=False, force=False)
