"""Options: their names, values, and what hides them; the launchers' options against the launchers themselves."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from gonogo.evidence.launch.command_line import CommandOptions
from gonogo.evidence.launch.launchers import LAUNCHERS
from gonogo.evidence.launch.reading import read_launches
from gonogo.evidence.source_file import SourceFile


def options_of(folder: Path, words: str, before: str = "") -> CommandOptions:
    path = folder / "launch.sh"
    path.write_text(f"{before}\npython t.py {words}\n")
    return read_launches(SourceFile.read(path))[-1].options


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--a 1", "a", "1"),
        ("--a=1", "a", "1"),
        ("--a_b 1", "a-b", "1"),
        ("--a-b 1", "a_b", "1"),
        ("--a 1 --a 2", "a", "2"),
        ("--a", "a", True),
        ("--a --b 1", "a", True),
        ("--a -1", "a", "-1"),
        ("--a -1e-5", "a", "-1e-5"),
        ("--a x y z --b", "a", ("x", "y", "z")),
        ("-n 4", "n", "4"),
        ("--a ''", "a", ""),
        ("--a 'x y'", "a", "x y"),
        ('--a="x y"', "a", "x y"),
        ("--a=b=c", "a", "b=c"),
    ],
)
def test_values(words: str, name: str, value: object, tmp_path: Path) -> None:
    options = options_of(tmp_path, words)
    assert options.get(name).value == value
    assert name in options
    assert options.complete
    assert options.get("other").absent


def test_duplicates(tmp_path: Path) -> None:
    options = options_of(tmp_path, "--a 1 --b --a 2")
    assert options.duplicates == ("a",)
    assert [field.value for field in options.all_values("a")] == ["1", "2"]
    place = options.place_of("a")
    assert place is not None
    assert place.text == "--a 2"


@pytest.mark.parametrize("words", ['"$@"', "$EXTRA", '"${UNSET[@]}" $X', "--a 1 $@"])
def test_words_that_may_hide_options(words: str, tmp_path: Path) -> None:
    options = options_of(tmp_path, words)
    assert not options.complete
    field = options.get("b")
    assert field.unknown
    assert field.reason is not None


@pytest.mark.parametrize("words", ["--a $X", "--a $(nproc) --b 1", "--a=$X --b 1", '"data/$X"'])
def test_values_that_hide_no_options(words: str, tmp_path: Path) -> None:
    options = options_of(tmp_path, words)
    assert options.complete
    assert options.get("c").absent
    if "--a" in words:
        assert options.get("a").unknown


def parser_of_deepspeed() -> argparse.ArgumentParser:
    runner = importlib.import_module("deepspeed.launcher.runner")
    found: list[argparse.ArgumentParser] = []

    def parse_args(self: argparse.ArgumentParser, *_args: object, **_options: object) -> None:
        found.append(self)
        raise KeyboardInterrupt

    with patch.object(argparse.ArgumentParser, "parse_args", parse_args), pytest.raises(KeyboardInterrupt):
        runner.parse_args([])
    return found[0]


def parser_of_torchrun() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = importlib.import_module("torch.distributed.run").get_args_parser()
    parser.add_argument("--use-env", "--use_env", action="store_true")
    return parser


def parser_of_accelerate() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = importlib.import_module("accelerate.commands.launch").launch_command_parser()
    return parser


@pytest.mark.parametrize(
    ("package", "name"), [("torch", "torchrun"), ("deepspeed", "deepspeed"), ("accelerate", "accelerate")]
)
def test_the_tables_have_the_options_of_the_installed_launchers(package: str, name: str) -> None:
    pytest.importorskip(package)
    parser: Any = globals()[f"parser_of_{name}"]()
    table = LAUNCHERS[name].options
    assert table is not None
    moved = []
    for action in parser._actions:
        flag = action.nargs == 0
        for word in action.option_strings:
            known = table.option_name_of(word)
            if known is None or (known in table.flags) != flag:
                moved.append(f"{word} ({'a flag' if flag else 'takes a value'})")
    version = importlib.metadata.version(package)
    assert not moved, f"{package} {version} has options that its description does not: {', '.join(moved)}"
