"""The trial of coding agents: its folders say nothing of the answer, and its scores are what its docstring says."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "agent_trial.py"


@pytest.fixture(scope="module")
def trial() -> Any:
    spec = importlib.util.spec_from_file_location("agent_trial", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def laid(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trial")
    trial.lay(directory)
    return directory


def test_sixteen_are_broken_and_four_are_not(trial: Any, laid: Path) -> None:
    verdicts = [one["verdict"] for one in trial.truths()]
    assert (verdicts.count("NO-GO"), verdicts.count("GO")) == (16, 4)
    assert sorted(folder.name for folder in laid.iterdir()) == [f"{number:02}" for number in range(1, 21)]


def test_the_folders_do_not_tell(trial: Any, laid: Path) -> None:
    for one in trial.truths():
        folder = laid / one["launch"]
        for name in ("README.md", "expected.json", "cure.json", "environment.json"):
            assert not (folder / name).exists()
        assert not list(folder.rglob("*_fixed.*"))
        assert Path(one["source"]).name not in (folder / "LAUNCH").read_text()
        for script in folder.rglob("*.py"):
            code = script.read_text()
            tree = ast.parse(code)
            assert not re.search(r"(^|\s)# ", code)
            for node in ast.walk(tree):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    assert ast.get_docstring(node) is None


def test_true_places_are_lines_that_hold_something(trial: Any, laid: Path) -> None:
    for one in trial.truths():
        assert bool(one["places"]) == (one["verdict"] == "NO-GO")
        for place in one["places"]:
            file, _, lines = place.rpartition(":")
            first, _, last = lines.partition("-")
            text = (laid / one["launch"] / file).read_text().splitlines()
            assert any(line.strip() for line in text[int(first) - 1 : int(last or first)]), (one["source"], place)


def test_lines_stay_where_they_were(trial: Any) -> None:
    code = '"""Fails."""\n\n\ndef f():\n    """Only this."""\n\n\nx = "# kept"  # noqa: gone\ny = """\n# kept\n"""\n'
    told = trial.without_comments(code)
    assert told.count("\n") == code.count("\n")
    assert told.splitlines()[4:9] == ["    pass", "", "", 'x = "# kept"', 'y = """']
    assert "# kept\n" in told
    assert "gone" not in told
    assert "Fails" not in told
    shell = '#!/bin/bash\n# it fails\n#SBATCH -N 2\nA="b # c"\nB=zero3    # was zero2\nC=${#D}\n'
    assert trial.without_hash_lines(shell) == '#!/bin/bash\n\n#SBATCH -N 2\nA="b # c"\nB=zero3\nC=${#D}\n'


@pytest.mark.parametrize(
    ("place", "right"),
    [
        ("train.py:12", True),
        ("./train.py:14", True),
        ("train.py:15", False),
        ("train.py:28", True),
        ("model.py:12", False),
        ("train.py:12:5 all_reduce", True),
        ("train.py", False),
        ("", False),
    ],
)
def test_a_place_is_right_within_two_lines(trial: Any, place: str, right: bool) -> None:
    assert trial.near(place, ["train.py:10-12", "train.py:30"]) is right


def test_answers_are_scored_and_kept(
    trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = next(one for one in trial.truths() if one["verdict"] == "NO-GO")
    healthy = next(one for one in trial.truths() if one["verdict"] == "GO")
    common = {"cause": "c", "cure": "d", "tool_calls": 3, "seconds": 40}
    answers = [
        {"launch": broken["launch"], "verdict": "no-go", "place": broken["places"][0].partition("-")[0], **common},
        {"launch": healthy["launch"], "verdict": "NO-GO", "place": "train.py:1", **common},
        {"launch": broken["launch"], "verdict": "CANNOT-TELL", "place": "", **common},
    ]
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    monkeypatch.setattr(trial, "RESULTS", tmp_path / "kept.jsonl")
    trial.score([tmp_path / "answers.json"])
    assert "1 right, 1 wrong, 1 open of 3" in capsys.readouterr().out
    trial.keep("with", [tmp_path / "answers.json"])
    trial.table()
    rows = capsys.readouterr().out.splitlines()
    assert {"| verdict right | 1 |", "| wrong GO | 0 |", "| wrong NO-GO | 1 |", "| CANNOT-TELL | 1 |"} <= set(rows)
    assert {"| place right | 1 |", "| tool calls | 9 |", "| seconds | 120 |"} <= set(rows)
    kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert [("cause_right" in one) for one in kept] == [True, False, False]
    with pytest.raises(SystemExit, match="MAYBE"):
        trial.scored({"launch": "01", "verdict": "MAYBE"}, broken)


@pytest.mark.parametrize("arm", ["without", "with"])
def test_instructions_name_no_answer(trial: Any, arm: str) -> None:
    names = ("directory", "launches", "scratch", "answers", "python", "gonogo", "repository", "environment")
    told = trial.instructions(arm, {name: name.upper() for name in names})
    assert ("GONOGO skills show" in told) is (arm == "with")
    assert not re.search(r"sixteen|twenty launches are broken|tests/", told)
