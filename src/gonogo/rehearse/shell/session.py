"""The folder of one run of a launch script: the stand-ins, what the script wrote, and what it would have started.

``bin/``      what the script finds on its PATH
``files/``    what the script wrote, under the full path that it wrote to
``calls``     one JSON line for each program that it would have started
``not_run``   the commands that were left out
``prelude.sh`` and ``sources/``: what bash reads
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from gonogo.rehearse.launch.environment import ON_PATH
from gonogo.rehearse.launch.launch import Surroundings
from gonogo.rehearse.launch.launchers import all_launchers
from gonogo.rehearse.shell import commands
from gonogo.rehearse.shell.rewrite import rewritten

# How deep scripts may call scripts: a script that calls itself would fill the machine.
MOST_NESTED = 20

# Linux takes no single argument of more than 128 KiB.
_LONGEST_ARGUMENT = 100_000


class ScriptCommand(msgspec.Struct, frozen=True):
    """A program that the script would have started."""

    kind: Literal["launch", "program"]
    """``launch``: a call of a launcher. ``program``: ``python`` with a script or module."""
    words: list[str]
    environment: dict[str, str]
    cwd: str


class StandInSettings(msgspec.Struct, frozen=True):
    """What a stand-in has to know; written once, read by each."""

    surroundings: Surroundings
    python: str
    bash: str
    path: str
    """PATH as it was before the session."""
    temporary: str | None
    """TMPDIR as it was before the session."""
    packages: list[str] = []
    """Folders that come first on PYTHONPATH in the Python helpers of the script."""


class ShellSession:
    """The folder of one run, as its parent and its stand-ins see it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.files = folder / "files"

    @classmethod
    def create(cls, folder: Path, settings: StandInSettings) -> ShellSession:
        """Make the folder with all that bash needs."""
        session = cls(folder)
        for name in ("bin", "files", "sources", "tmp"):
            (folder / name).mkdir(parents=True)
        (folder / "settings.json").write_bytes(msgspec.json.encode(settings))
        (folder / "calls").touch()
        (folder / "not_run").touch()
        session._make_bin(settings)
        session._write_prelude(settings)
        return session

    @property
    def settings(self) -> StandInSettings:
        """What :meth:`create` wrote."""
        return msgspec.json.decode((self.folder / "settings.json").read_bytes(), type=StandInSettings)

    def _make_bin(self, settings: StandInSettings) -> None:
        taken_over = self.bin / "__gonogo_stand_in"
        stand_in = Path(__file__).with_name("stand_in.py")
        words = shlex.join([settings.python, "-I", str(stand_in), str(self.folder)])
        taken_over.write_text(f'#!/bin/sh\nexec {words} "${{0##*/}}" "$@"\n')
        left_out = self.bin / "__gonogo_left_out"
        log = shlex.quote(str(self.folder / "not_run"))
        left_out.write_text(
            f"#!/bin/sh\n{{ printf '%s\\037' \"${{0##*/}}\" \"$@\"; printf '\\036'; }} >>{log}\nexit 0\n"
        )
        taken_over.chmod(0o755)
        left_out.chmod(0o755)
        own = {"__gonogo_source", "__gonogo_rewrite", "__gonogo_path"}
        launchers = {call.split()[0] for launcher in all_launchers() for call in launcher.described.commands}
        for name in {*own, *launchers, *commands.STOOD_IN, *commands.PYTHONS}:
            (self.bin / name).symlink_to(taken_over)
        real = {*commands.READERS, *commands.STARTERS, *commands.HARMLESS}
        for name, path in _executables(settings.path):
            target = path if name in real else taken_over if name in commands.PASSED_THROUGH else left_out
            if not os.path.lexists(self.bin / name):
                (self.bin / name).symlink_to(target)

    def _write_prelude(self, settings: StandInSettings) -> None:
        launchers = {call.split()[0] for launcher in all_launchers() for call in launcher.described.commands}
        helpers = {
            **{name: f"{self.bin}/{name}" for name in sorted(launchers | _ALWAYS_FUNCTIONS)},
            **{name: f"__gonogo_reader {name}" for name in commands.READERS},
            **{name: f"__gonogo_starter {name}" for name in commands.STARTERS},
        }
        functions = [
            f'{name}() {{ {helper} "$@"; }}'
            for name, helper in helpers.items()
            if name not in _BASH_KEEPS and (self.bin / name).exists() and _FUNCTION_NAME.match(name)
        ]
        variables = {
            "__gonogo_session": str(self.folder),
            "__gonogo_mkdir": shutil.which("mkdir", path=settings.path) or "/bin/mkdir",
            "__gonogo_cp": shutil.which("cp", path=settings.path) or "/bin/cp",
        }
        head = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        body = Path(__file__).with_name("prelude.sh").read_text(encoding="utf-8")
        (self.folder / "prelude.sh").write_text("\n".join([*head, body, *functions, ""]), encoding="utf-8")

    def prepared(self, text: str, source: str) -> str:
        """A script's text as bash is given it. Raises Unreadable."""
        return rewritten(text, source, f". {shlex.quote(str(self.folder / 'prelude.sh'))}; ")

    def fail(self, why: str) -> None:
        """Take down that a script can't be followed."""
        with open(self.folder / "failure", "a", encoding="utf-8") as file:
            file.write(f"{why}\n")

    def failure(self) -> str | None:
        """Why a script can't be followed, or None."""
        path = self.folder / "failure"
        return path.read_text(encoding="utf-8").splitlines()[0] if path.exists() else None

    def bash_command(self, options: list[str], text: str, name: str, arguments: list[str]) -> list[str]:
        """The command line on which bash runs a prepared text as if it were the script ``name``."""
        if len(text.encode("utf-8", "surrogateescape")) > _LONGEST_ARGUMENT:
            path = self.write_source(text)
            text = f". {shlex.quote(str(path))}"
        return [self.settings.bash, *options, "-c", text, name, *arguments]

    def write_source(self, text: str) -> Path:
        """Keep a prepared text as a file, for ``source``."""
        folder = self.folder / "sources"
        path = folder / f"{os.getpid()}-{len(list(folder.iterdir()))}.sh"
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        return path

    def place(self, path: str, cwd: str) -> Path:
        """Where a path that the script writes to is kept."""
        return Path(f"{self.files}{os.path.normpath(os.path.join(cwd, path))}")

    def call(self, call: ScriptCommand) -> None:
        """Take down a program that would have been started."""
        line = msgspec.json.encode(call) + b"\n"
        descriptor = os.open(self.folder / "calls", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line)  # one write, so that the lines of two stand-ins never mix
        finally:
            os.close(descriptor)

    def calls(self) -> list[ScriptCommand]:
        """The programs that would have been started, in order."""
        lines = (self.folder / "calls").read_bytes().splitlines()
        return [msgspec.json.decode(line, type=ScriptCommand) for line in lines]

    def leave_out(self, words: list[str]) -> None:
        """Take down a command that is not run."""
        record = "".join(f"{word}\037" for word in words) + "\036"
        with open(self.folder / "not_run", "ab") as file:
            file.write(record.encode("utf-8", "surrogateescape"))

    def left_out(self) -> list[list[str]]:
        """The commands that were not run, each once, in order of first call."""
        text = (self.folder / "not_run").read_bytes().decode("utf-8", "replace")
        found = {tuple(record.split("\037")[:-1]): None for record in text.split("\036")[:-1]}
        return [list(words) for words in found]

    def outer_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """An environment of the session as it would be without one."""
        settings = self.settings
        outer = {
            name: value
            for name, value in environment.items()
            if name == ON_PATH or not (name.startswith("GONOGO_") or name == "_")
        }
        entries: list[str] = []
        for entry in outer.get("PATH", "").split(os.pathsep):
            if entry == str(self.bin):
                entries.append(settings.path)
            elif entry != f"{self.bin}/":
                entries.append(entry)
        outer["PATH"] = os.pathsep.join(entries)
        if outer.get("TMPDIR") == str(self.folder / "tmp"):
            del outer["TMPDIR"]
            if settings.temporary is not None:
                outer["TMPDIR"] = settings.temporary
        return outer

    def inner_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment in which bash is started."""
        inner = {name: value for name, value in environment.items() if name not in ("BASH_ENV", "ENV")}
        return {**inner, "PATH": str(self.bin), "TMPDIR": str(self.folder / "tmp")}


# Reserved words and builtins of bash, which must stay what they are.
_BASH_KEEPS = frozenset({"time", "[", "test", "echo", "printf", "pwd", "true", "false"})
# Stand-ins that hold even where the script puts other folders before the session's on PATH.
_ALWAYS_FUNCTIONS = frozenset({*commands.STOOD_IN, *commands.PYTHONS, *commands.PASSED_THROUGH})
_FUNCTION_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_.-]*$")


def _executables(path: str) -> Iterator[tuple[str, str]]:
    """(name, path) of the programs on a PATH, the first of a name first."""
    for folder in path.split(os.pathsep):
        try:
            names = sorted(os.listdir(folder or "."))
        except OSError:
            continue
        for name in names:
            yield name, os.path.join(os.path.abspath(folder or "."), name)
