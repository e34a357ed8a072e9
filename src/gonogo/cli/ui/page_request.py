"""What the page asks for, as the words of a command: all of it is held against the folder first."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Literal

import msgspec

from gonogo.cli.serving.folders import Folders, RequestRefused
from gonogo.finding import translated

MAX_BYTES = 64 << 20
"""Of a request: a log that is pasted may be long."""
_MODEL = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")


class UiRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One request of the page; what is empty was not filled in."""

    tool: Literal["check", "rehearse", "plan", "cure", "diagnose", "report"]
    language: Literal["en", "zh"] = "en"
    folder: str = ""
    """Below the root."""
    command: str = ""
    """As one would type it; it is split into words, and no shell sees it."""
    gpus: str = ""
    nodes: int | None = None
    host_memory: str = ""
    ranks: str = ""
    steps: int | None = None
    model: str = ""
    seq_len: int | None = None
    tune: str = ""
    task: str = ""
    teacher: str = ""
    training_changes: bool = False
    log: str = ""
    """A log as text."""
    logs: list[str] = []
    """Logs by name, in the folder."""
    records: str = ""
    """The folder of a guarded run."""
    with_files: bool = False
    """Whether a log is read together with the files of the folder."""


class UiComparison(msgspec.Struct, forbid_unknown_fields=True):
    """Two rehearsals of the history, by their ids, in any order."""

    one: str
    other: str
    language: Literal["en", "zh"] = "en"


def command_words(asked: UiRequest, folders: Folders) -> tuple[list[str], Path, bytes]:
    """The words after ``gonogo``, the folder to start it in, and its stdin. Raises Refused."""
    folder = folders.folder(asked.folder)
    launched = folders.command(_split(asked.command), folder)
    words = {
        "check": _check,
        "rehearse": _rehearse,
        "plan": _plan,
        "cure": _cure,
        "diagnose": _diagnose,
        "report": _report,
    }[asked.tool](asked, folders, folder, launched)
    if any("\0" in word for word in words):
        raise RequestRefused(translated("an argument contains a null byte"))
    tool = "run" if asked.tool == "report" else asked.tool
    shown = ["--format=html", f"--lang={asked.language}"]
    given = asked.log.encode("utf-8", "replace") if asked.tool == "diagnose" else b""
    return [tool, *shown, *words, *(["--", *launched] if launched and tool != "run" else [])], folder, given


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command.replace("\\\n", " "))
    except ValueError:
        raise RequestRefused(translated("the command has a quote that is not closed")) from None


def _check(asked: UiRequest, folders: Folders, folder: Path, launched: list[str]) -> list[str]:
    return [] if launched else ["."]


def _rehearse(asked: UiRequest, folders: Folders, folder: Path, launched: list[str]) -> list[str]:
    _some(launched)
    return [*_machine(asked), *_option_words(ranks=asked.ranks, steps=asked.steps)]


def _plan(asked: UiRequest, folders: Folders, folder: Path, launched: list[str]) -> list[str]:
    words = [*_machine(asked), *_option_words(seq_len=asked.seq_len, tune=asked.tune, task=asked.task)]
    if asked.teacher:
        words.append(f"--teacher={_model(asked.teacher, folders, folder)}")
    if asked.model:
        words.append(_model(asked.model, folders, folder))
        launched.clear()  # of the two, the model is what was named for it
    elif not launched:
        raise RequestRefused(translated("plan needs a model, or a command that trains one"))
    return words


def _model(name: str, folders: Folders, folder: Path) -> str:
    """A hub name as it is, else a folder below the root."""
    is_name = _MODEL.fullmatch(name) and not (folder / name).exists()
    return name if is_name else folders.word(name, folder)


def _cure(asked: UiRequest, folders: Folders, folder: Path, launched: list[str]) -> list[str]:
    _some(launched)
    changes = ["--allow-training-changes"] if asked.training_changes else []
    return [*_machine(asked), "--output-patch=/dev/null", *changes]


def _diagnose(asked: UiRequest, folders: Folders, folder: Path, launched: list[str]) -> list[str]:
    if not asked.log.strip() and not asked.logs:
        raise RequestRefused(translated("no log: paste one, or choose a file"))
    beside = ["--project=."] if asked.with_files else []
    launched.clear()  # what is typed for a launch is not what the log is of
    return [*beside, *(["-"] if asked.log.strip() else []), *(folders.word(name, folder) for name in asked.logs)]


def _report(asked: UiRequest, folders: Folders, folder: Path, launched: list[str]) -> list[str]:
    return [f"--report={folders.word(asked.records, folder)}"]


def _machine(asked: UiRequest) -> list[str]:
    return _option_words(gpus=asked.gpus, nodes=asked.nodes, host_memory=asked.host_memory)


def _option_words(**values: str | int | None) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value]


def _some(launched: list[str]) -> None:
    if not launched:
        raise RequestRefused(translated("no command: choose a launch script, or write one"))
