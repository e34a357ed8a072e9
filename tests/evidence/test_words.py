"""Command lines taken apart: what stands before the program, and what Python is told to run."""

from __future__ import annotations

import shlex

import pytest

from gonogo.evidence.launch.command_words import python_command, strip_prefix


@pytest.mark.parametrize(
    ("line", "words", "environment"),
    [
        ("torchrun train.py", "torchrun train.py", {}),
        ("A=1 B='x y' torchrun train.py", "torchrun train.py", {"A": "1", "B": "x y"}),
        ("env A=1 -u HOME B= torchrun t.py", "env A=1 -u HOME B= torchrun t.py", None),
        ("env -u HOME A=1 B= torchrun t.py", "torchrun t.py", {"A": "1", "B": ""}),
        ("nohup env A=1 nice -n 5 torchrun t.py", "torchrun t.py", {"A": "1"}),
        ("timeout -k 5 3600 numactl -N 0 --membind=0 python t.py", "python t.py", {}),
        ("taskset -c 0-7 python t.py", "python t.py", {}),
        ("time -- stdbuf -oL python t.py A=1", "python t.py A=1", {}),
        ("A=1", "", {"A": "1"}),
        ("", "", {}),
    ],
)
def test_what_stands_before_a_command_is_taken_off(line: str, words: str, environment: dict[str, str] | None) -> None:
    plain = strip_prefix(shlex.split(line))
    if environment is None:  # an option after an assignment is env's command, as in env itself
        assert plain.words[0] == "-u"
        return
    assert list(plain.words) == shlex.split(words)
    assert plain.environment == environment


def test_env_removes_clears_and_changes_folder() -> None:
    plain = strip_prefix(["env", "-i", "-u", "A", "--unset=B", "-C", "/x", "C=1", "python", "t.py"])
    assert (plain.cleared, plain.removed, plain.chdir, plain.environment) == (True, ("A", "B"), "/x", {"C": "1"})


@pytest.mark.parametrize(
    ("line", "kind", "target", "arguments"),
    [
        ("train.py --x 1", "script", "train.py", ["--x", "1"]),
        ("-u -W ignore -X faulthandler train.py -m y", "script", "train.py", ["-m", "y"]),
        ("-m pkg.train --x", "module", "pkg.train", ["--x"]),
        ("-um pkg.train", "module", "pkg.train", []),
        ("-Wignore -OO -mpkg", "module", "pkg", []),
        ("-c 'import torch' a", "code", "import torch", ["a"]),
        ("-ucprint(1)", "code", "print(1)", []),
        ("- a", "stdin", "", ["a"]),
        ("", "stdin", "", []),
        ("-V", "none", "", []),
        ("--version", "none", "", []),
    ],
)
def test_what_python_runs(line: str, kind: str, target: str, arguments: list[str]) -> None:
    command = python_command(shlex.split(line))
    assert (command.kind, command.target, list(command.arguments)) == (kind, target, arguments)
