"""The state of one run of a launch script, shared by its parent and its stand-ins.

``readable/shell-N/`` read by stand-ins: the settings, and for each replaced program what was to be started
``shared/shell-N/``   written by stand-ins: ``calls``, a line of JSON for each program that would have started a
                      training; ``not_run``, the commands that were skipped
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
"""How deeply scripts may call scripts: one that calls itself would never end."""
PYTHONS = ("python", "python3")
NOT_FOUND = "BASH_FUNC_command_not_found_handle%%"
"""The exported function that bash and its child shells call for a command that isn't found."""
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
    """The settings of stand-ins, written once and read by each of them."""

    surroundings: LaunchMachine
    python: str
    written: str
    """The folder to which stand-ins write."""
    packages: list[str] = []
    """Folders that come first on PYTHONPATH in the script's Python helpers."""


class ReplacedProgram(msgspec.Struct, frozen=True):
    """A program that was replaced by a stand-in."""

    path: str
    name: str
    """The first word of its command line."""
    left_out: bool = False
    """Whether it is skipped, because it can't reach another machine or has no terminal."""


class ShellSession:
    """The files of one run. ``readable`` is the folder with the settings."""

    def __init__(self, readable: Path) -> None:
        self.readable = readable
        self.settings = msgspec.json.decode((readable / "settings.json").read_bytes(), type=StandInSettings)
        self.written = Path(self.settings.written)

    @classmethod
    def create(
        cls, readable: Path, shared: Path, surroundings: LaunchMachine, python: str, packages: list[str]
    ) -> ShellSession:
        """Create a session with its folders."""
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

    def stand_in_command(self, *options: str) -> list[str]:
        """The command line of a stand-in, to which the program's arguments are appended."""
        return [self.settings.python, "-I", STAND_IN_PATH, str(self.readable), *options]

    # -- the parent's side: it reads untrusted files

    def record_replaced(self, process: int, replaced_program: ReplacedProgram) -> None:
        """Record what a process (by its id in the world) was about to start."""
        (self.readable / "replaced" / str(process)).write_bytes(_encode_struct(replaced_program))

    def calls(self) -> list[ScriptCommand]:
        """The programs that would have been started, in order."""
        found = []
        for line in (read_untrusted(self.written / "calls", _MAX_BYTES) or b"").splitlines():
            with contextlib.suppress(ValueError, RecursionError):  # the script itself may have written there
                found.append(_decode_struct(line, ScriptCommand))
        return found

    @property
    def has_launched(self) -> bool:
        """Whether any program would have been started so far."""
        try:
            return os.lstat(self.written / "calls").st_size > 0
        except OSError:
            return False

    def skipped(self) -> list[list[str]]:
        """The commands that were skipped, each once, in order of their first call."""
        text = (read_untrusted(self.written / "not_run", _MAX_BYTES) or b"").decode("utf-8", "replace")
        found = {tuple(record.split("\037")[:-1]): None for record in text.split("\036")[:-1]}
        return [list(words) for words in found]

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment variables for bash, in which the stand-in handles missing commands."""
        function = f'() {{ {shlex.join(self.stand_in_command("--missing"))} "$@"; }}'
        inner = {name: value for name, value in environment.items() if name not in ("BASH_ENV", "ENV")}
        # Launchers that are missing on this machine are found last on PATH.
        path = environment.get("PATH", os.defpath)
        return {**inner, NOT_FOUND: function, "PATH": f"{path}{os.pathsep}{self.readable / 'bin'}"}

    # -- the stand-ins' side, in the world

    def replaced_program(self) -> ReplacedProgram:
        """What this process was about to start."""
        return _decode_struct((self.readable / "replaced" / str(os.getpid())).read_bytes(), ReplacedProgram)

    def record_call(self, kind: Literal["launch", "program"], words: list[str]) -> None:
        """Record a program that would have been started."""
        call = ScriptCommand(kind, words, self._outer_environment(), os.getcwd())
        descriptor = os.open(self.written / "calls", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(
                descriptor, _encode_struct(call) + b"\n"
            )  # a single write, so that lines of two stand-ins never mix
        finally:
            os.close(descriptor)

    def record_skipped(self, words: list[str]) -> None:
        """Record a command that is skipped."""
        record = "".join(f"{word}\037" for word in words) + "\036"
        with open(self.written / "not_run", "ab") as file:
            file.write(record.encode("utf-8", "surrogateescape"))

    def _outer_environment(self) -> dict[str, str]:
        """The environment of the replaced program, without what the session added."""
        outer = {
            name: value
            for name, value in os.environ.items()
            if name == PATH_VARIABLE or not (name.startswith("GONOGO_") or name in ("_", NOT_FOUND))
        }
        if "PATH" in outer:
            folders = outer["PATH"].split(os.pathsep)
            outer["PATH"] = os.pathsep.join(folder for folder in folders if folder != str(self.readable / "bin"))
        return outer


def _encode_struct(value: msgspec.Struct) -> bytes:
    """Encode as ASCII JSON: file names and words may be in any encoding, which msgspec doesn't support."""
    return json.dumps(msgspec.to_builtins(value)).encode()


def _decode_struct(data: bytes, kind: type[T]) -> T:
    """Decode what :func:`_encode_struct` encoded. Raises ValueError for anything else."""
    return msgspec.convert(json.loads(data), kind)


def launcher_names() -> set[str]:
    """The names of all launchers' commands."""
    return {call.split()[0] for launcher in all_launchers() for call in launcher.described.commands} - {"python"}
