"""``gonogo``, ``gonogo --help`` and the help of each command: whole sentences, examples that parse, both languages."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_group

from gonogo.cli import app as application
from gonogo.cli.app import option_help_in_chinese, translate_help
from gonogo.cli.help import overview
from gonogo.report.page import Page, column_width

CHINESE = re.compile("[\u4e00-\u9fff]")


@pytest.fixture
def commands() -> Iterator[dict[str, Any]]:
    every = list(application.app.registered_commands)
    application._register_lazy_commands(None)
    try:
        yield dict(get_group(application.app).commands)
    finally:
        application.app.registered_commands = every


def test_the_overview_has_every_command_once(commands: dict[str, Any]) -> None:
    assert sorted(overview.command_names()) == sorted(commands)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_overview_fits_a_terminal_and_cuts_nothing_off(language: str) -> None:
    buffer = io.StringIO()
    overview.print_overview(Page(buffer, width=80), language)
    written = buffer.getvalue()
    assert "…" not in written
    assert "..." not in written
    examples = [command.example for group in overview.COMMAND_GROUPS for command in group.commands]
    for line in written.splitlines():
        assert column_width(line) <= 80 or line.strip() in examples
    for group in overview.COMMAND_GROUPS:
        for command in group.commands:
            said = command.says.in_language(language)
            assert said.endswith("." if language == "en" else "。")
            assert "".join(said.split()) in "".join(written.split())


def test_examples_name_their_command_and_options_that_there_are(commands: dict[str, Any]) -> None:
    for group in overview.COMMAND_GROUPS:
        for command in group.commands:
            words = shlex.split(command.example.rpartition("-- gonogo ")[2] or command.example)
            words = words[words.index("gonogo") + 1 :] if "gonogo" in words else words
            assert words[0] == command.name
            if command.name == "sbatch":  # which hands options on
                continue
            known = {name for one in commands[command.name].params for name in one.opts}
            before = words[: words.index("--")] if "--" in words else words
            assert {word for word in before if word.startswith("--")} <= known


def test_every_option_is_told_in_chinese_and_the_table_has_no_other(commands: dict[str, Any]) -> None:
    told = {one.help for command in commands.values() for one in command.params if getattr(one, "help", None)}
    told.discard("Show this message and exit.")
    chinese = option_help_in_chinese()
    assert told == set(chinese)
    assert all(CHINESE.search(text) for text in chinese.values())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_commands_help_speaks_one_language(commands: dict[str, Any], language: str) -> None:
    for command in commands.values():
        translate_help(command, language)
        first = (command.help or "").strip().splitlines()[0]
        assert bool(CHINESE.search(first)) is (language == "zh"), command.name
        if language == "en":
            assert not CHINESE.search(command.help or ""), command.name


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["--lang", "en", "--help"]])
def test_gonogo_alone_says_what_to_do_first(words: list[str]) -> None:
    environment = {**os.environ, "LANG": "C", "LC_ALL": "", "LC_MESSAGES": "", "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert done.returncode == 0
    assert "gonogo check -- bash launch.sh" in done.stdout
    assert "Before a run" in done.stdout


def test_help_is_chinese_under_a_chinese_locale() -> None:
    environment = {**os.environ, "LANG": "zh_CN.UTF-8", "LC_ALL": "", "LC_MESSAGES": "", "COLUMNS": "80"}
    for words, expected in (([], "运行之前"), (["rehearse", "--help"], "运行哪些 rank")):
        done = subprocess.run(
            [sys.executable, "-m", "gonogo", *words], capture_output=True, timeout=60, env=environment, check=False
        )
        assert expected in done.stdout.decode()


def test_the_doctor_says_it_in_five_lines() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", "doctor"], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "LANG": "C"},
    )  # fmt: skip
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == ["torch", "DeepSpeed", "uv", "browser", "network"]
    assert done.returncode in (0, 3)
