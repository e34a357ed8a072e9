"""Turn a request from the page into a command line; all its paths are checked against the allowed folders first."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Literal

import msgspec

from gonogo.cli.serving.folders import Folders, RequestRefused
from gonogo.finding import UserError, translated
from gonogo.trials.what_if.setting_changes import format_settings, read_settings

MAX_BYTES = 64 << 20
"""Maximum size of a request in bytes; a pasted log may be long."""
_HUB_NAME_PATTERN = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")


class UiRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request from the page; empty fields were not filled in."""

    tool: Literal["check", "rehearse", "plan", "cure", "diagnose", "report"]
    language: Literal["en", "zh"] = "en"
    folder: str = ""
    """Path relative to the root."""
    command: str = ""
    """The command as typed; it is split into words, without a shell."""
    gpus: str = ""
    nodes: int | None = None
    host_memory: str = ""
    ranks: str = ""
    steps: int | None = None
    settings: dict[str, str] = {}
    """Settings to rehearse with instead of the run's own, by name."""
    also: list[dict[str, str]] = []
    """Settings of rehearsals beside it."""
    model: str = ""
    seq_len: int | None = None
    tune: str = ""
    task: str = ""
    teacher: str = ""
    training_changes: bool = False
    log: str = ""
    """The text of a pasted log."""
    logs: list[str] = []
    """Names of log files in the folder."""
    records: str = ""
    """The folder with a guarded run's records."""
    with_files: bool = False
    """Whether to read the folder's files along with a log."""


class UiComparison(msgspec.Struct, forbid_unknown_fields=True):
    """Two stored rehearsals to compare, by their ids, in any order."""

    one: str
    other: str
    language: Literal["en", "zh"] = "en"


def command_words(request: UiRequest, folders: Folders) -> tuple[list[str], Path, bytes]:
    """The arguments of ``gonogo``, the folder to start it in, and its stdin. Raises RequestRefused."""
    folder = folders.folder(request.folder)
    launched = folders.command(_split_command(request.command), folder)
    words = {
        "check": _check_arguments,
        "rehearse": _rehearse_arguments,
        "plan": _plan_arguments,
        "cure": _cure_arguments,
        "diagnose": _diagnose_arguments,
        "report": _report_arguments,
    }[request.tool](request, folders, folder, launched)
    if any("\0" in word for word in words):
        raise RequestRefused(translated("an argument contains a null byte"))
    tool = "run" if request.tool == "report" else request.tool
    shown = ["--format=html", f"--lang={request.language}"]
    given = request.log.encode("utf-8", "replace") if request.tool == "diagnose" else b""
    return [tool, *shown, *words, *(["--", *launched] if launched and tool != "run" else [])], folder, given


def _split_command(command: str) -> list[str]:
    try:
        return shlex.split(command.replace("\\\n", " "))
    except ValueError:
        raise RequestRefused(translated("the command has an unclosed quote")) from None


def _check_arguments(requested: UiRequest, folders: Folders, folder: Path, command: list[str]) -> list[str]:
    return [] if command else ["."]


def _rehearse_arguments(request: UiRequest, folders: Folders, folder: Path, command: list[str]) -> list[str]:
    _require_command(command)
    return [
        *_machine_options(request),
        *_option_words(ranks=request.ranks, steps=request.steps),
        *_other_settings(request),
    ]


def _other_settings(request: UiRequest) -> list[str]:
    words: list[str] = []
    for option, settings in (("--set", request.settings), *(("--also", one) for one in request.also)):
        if settings:
            try:
                words.append(f"{option}={format_settings(read_settings([format_settings(settings)], option))}")
            except UserError as error:
                raise RequestRefused(error.text) from None
    return words


def _plan_arguments(request: UiRequest, folders: Folders, folder: Path, command: list[str]) -> list[str]:
    words = [*_machine_options(request), *_option_words(seq_len=request.seq_len, tune=request.tune, task=request.task)]
    if request.teacher:
        words.append(f"--teacher={_model_argument(request.teacher, folders, folder)}")
    if request.model:
        words.append(_model_argument(request.model, folders, folder))
        command.clear()  # if both are given, the model takes precedence
    elif not command:
        raise RequestRefused(translated("plan needs a model, or a command that trains one"))
    return words


def _model_argument(name: str, folders: Folders, folder: Path) -> str:
    """A hub name as it is, or otherwise a path in an allowed folder."""
    is_name = _HUB_NAME_PATTERN.fullmatch(name) and not (folder / name).exists()
    return name if is_name else folders.word(name, folder)


def _cure_arguments(request: UiRequest, folders: Folders, folder: Path, command: list[str]) -> list[str]:
    _require_command(command)
    changes = ["--allow-training-changes"] if request.training_changes else []
    return [*_machine_options(request), "--output-patch=/dev/null", *changes]


def _diagnose_arguments(request: UiRequest, folders: Folders, folder: Path, command: list[str]) -> list[str]:
    if not request.log.strip() and not request.logs:
        raise RequestRefused(translated("no log: paste one, or choose a file"))
    beside = ["--project=."] if request.with_files else []
    command.clear()  # the command field is for launches; a log may come from another run
    return [*beside, *(["-"] if request.log.strip() else []), *(folders.word(name, folder) for name in request.logs)]


def _report_arguments(request: UiRequest, folders: Folders, folder: Path, command: list[str]) -> list[str]:
    return [f"--report={folders.word(request.records, folder)}"]


def _machine_options(request: UiRequest) -> list[str]:
    return _option_words(gpus=request.gpus, nodes=request.nodes, host_memory=request.host_memory)


def _option_words(**values: str | int | None) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value]


def _require_command(command: list[str]) -> None:
    if not command:
        raise RequestRefused(translated("no command: choose a launch script, or write one"))
