"""One run of a launch script, as its parent and its stand-ins know it.

``readable/shell-N/`` what stand-ins read: the settings, and for each replaced program what was to be started
``shared/shell-N/``   what they write: ``calls``, a line of JSON for each program that would have started a training;
                      ``not_run``, the commands that were left out
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from gonogo.confinement.untrusted_files import read_untrusted
from gonogo.prepare.provided_files import PATH_VARIABLE
from gonogo.rehearse.launch.launch import LaunchMachine
from gonogo.rehearse.launch.launchers import all_launchers

T = TypeVar("T", bound=msgspec.Struct)

MAX_NESTING = 20
"""How deep scripts may call scripts: one that calls itself would go on for ever."""
PYTHONS = ("python", "python3")
NOT_FOUND = "BASH_FUNC_command_not_found_handle%%"
"""The function that bash calls for a command that is not there, handed to it and all that it starts."""
STAND_IN_PATH = str(Path(__file__).with_name("stand_in.py"))
_MAX_BYTES = 16 << 20


class ScriptCommand(msgspec.Struct, frozen=True):
    """A program that the script would have started."""

    kind: Literal["launch", "program"]
    """``launch``: a call of a launcher. ``program``: ``python`` with a script or module."""
    words: list[str]
    environment: dict[str, str]
    cwd: str


class StandInSettings(msgspec.Struct, frozen=True):
    """What a stand-in has to know; written once, read by each."""

    surroundings: LaunchMachine
    python: str
    written: str
    """The folder that stand-ins write to."""
    packages: list[str] = []
    """Folders that come first on PYTHONPATH in the Python helpers of the script."""


class ReplacedProgram(msgspec.Struct, frozen=True):
    """A program that a stand-in has taken the place of."""

    path: str
    name: str
    """What the caller named it: the first word of its command line."""
    left_out: bool = False
    """It is not run: it reaches for another machine in vain, or has no terminal."""


class ShellSession:
    """``readable``: the folder with the settings."""

    def __init__(self, readable: Path) -> None:
        self.readable = readable
        self.settings = msgspec.json.decode((readable / "settings.json").read_bytes(), type=StandInSettings)
        self.written = Path(self.settings.written)

    @classmethod
    def create(
        cls, readable: Path, shared: Path, surroundings: LaunchMachine, python: str, packages: list[str]
    ) -> ShellSession:
        """Make both folders."""
        own = Path(tempfile.mkdtemp(prefix="shell-", dir=readable))
        own.chmod(0o755)
        (own / "replaced").mkdir()
        (own / "bin").mkdir()
        for name in [*launcher_names(), *PYTHONS, "npu-smi" if surroundings.device_type == "npu" else "nvidia-smi"]:
            (own / "bin" / name).write_text("#!/usr/bin/env python3\n")
            (own / "bin" / name).chmod(0o755)
        written = shared / own.name
        written.mkdir()
        for name in ("calls", "not_run"):
            (written / name).touch()
        settings = StandInSettings(surroundings, python, str(written), packages)
        (own / "settings.json").write_bytes(msgspec.json.encode(settings))
        return cls(own)

    def stand_in(self, *options: str) -> list[str]:
        """The command line of a stand-in, which the arguments of the program follow."""
        return [self.settings.python, "-I", STAND_IN_PATH, str(self.readable), *options]

    # -- the parent's side: what it reads may be a stranger's

    def record_replaced(self, process: int, replaced_program: ReplacedProgram) -> None:
        """Take down what a process (by its number in the world) was about to become."""
        (self.readable / "replaced" / str(process)).write_bytes(_written(replaced_program))

    def calls(self) -> list[ScriptCommand]:
        """The programs that would have been started, in order."""
        found = []
        for line in (read_untrusted(self.written / "calls", _MAX_BYTES) or b"").splitlines():
            with contextlib.suppress(ValueError, RecursionError):  # the script itself wrote there
                found.append(_read(line, ScriptCommand))
        return found

    @property
    def has_launched(self) -> bool:
        """Whether anything would have been started yet."""
        try:
            return os.lstat(self.written / "calls").st_size > 0
        except OSError:
            return False

    def skipped(self) -> list[list[str]]:
        """The commands that were not run, each once, in order of first call."""
        text = (read_untrusted(self.written / "not_run", _MAX_BYTES) or b"").decode("utf-8", "replace")
        found = {tuple(record.split("\037")[:-1]): None for record in text.split("\036")[:-1]}
        return [list(words) for words in found]

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment in which bash is started: for a command that is not there, the stand-in answers."""
        function = f'() {{ {shlex.join(self.stand_in("--missing"))} "$@"; }}'
        inner = {name: value for name, value in environment.items() if name not in ("BASH_ENV", "ENV")}
        # Launchers that this machine lacks are found last, by whatever looks for a program.
        path = environment.get("PATH", os.defpath)
        return {**inner, NOT_FOUND: function, "PATH": f"{path}{os.pathsep}{self.readable / 'bin'}"}

    # -- the stand-ins' side, in the world

    def replaced(self) -> ReplacedProgram:
        """What this process was about to become."""
        return _read((self.readable / "replaced" / str(os.getpid())).read_bytes(), ReplacedProgram)

    def call(self, kind: Literal["launch", "program"], words: list[str]) -> None:
        """Take down a program that would have been started."""
        call = ScriptCommand(kind, words, self._outer_environment(), os.getcwd())
        descriptor = os.open(self.written / "calls", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, _written(call) + b"\n")  # one write: lines of two stand-ins never mix
        finally:
            os.close(descriptor)

    def skip(self, words: list[str]) -> None:
        """Take down a command that is not run."""
        record = "".join(f"{word}\037" for word in words) + "\036"
        with open(self.written / "not_run", "ab") as file:
            file.write(record.encode("utf-8", "surrogateescape"))

    def _outer_environment(self) -> dict[str, str]:
        """The environment of the replaced program, without what the session has put in."""
        outer = {
            name: value
            for name, value in os.environ.items()
            if name == PATH_VARIABLE or not (name.startswith("GONOGO_") or name in ("_", NOT_FOUND))
        }
        if "PATH" in outer:
            folders = outer["PATH"].split(os.pathsep)
            outer["PATH"] = os.pathsep.join(folder for folder in folders if folder != str(self.readable / "bin"))
        return outer


def _written(value: msgspec.Struct) -> bytes:
    """As JSON in ASCII: names of files and words of commands may be in any encoding, which msgspec does not take."""
    return json.dumps(msgspec.to_builtins(value)).encode()


def _read(data: bytes, kind: type[T]) -> T:
    """What :func:`_written` wrote. Raises ValueError where a stranger wrote something else."""
    return msgspec.convert(json.loads(data), kind)


def launcher_names() -> set[str]:
    """What launchers are called by."""
    return {call.split()[0] for launcher in all_launchers() for call in launcher.described.commands} - {"python"}
