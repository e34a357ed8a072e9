"""What is launched: the launcher, its program, their options and variables, the number of processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gonogo.evidence.field import Field
from gonogo.evidence.launch.command_line import CommandOptions, Word, quoted
from gonogo.evidence.launch.command_words import ProgramKind
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Edit, Text


class WrittenFile(msgspec.Struct, frozen=True):
    """A file that the script itself writes, by heredoc. ``text`` is None where it can't be told."""

    path: str
    text: str | None
    place: Place
    literal: bool
    """The text stands in the script byte for byte."""

    @property
    def source(self) -> SourceFile | None:
        """The file to read it from; None where its text can't be told.

        Where the text stands in the script as it is, this is the script with all else blanked out: places in it, and
        edits of them, are places in the script.
        """
        if self.text is None:
            return None
        if not self.literal:
            return SourceFile.from_text(self.path, self.text)
        script, start, end = self.place.source, self.place.start, self.place.end
        blank = b"\n".join(b" " * len(line) for line in script.data[:start].split(b"\n"))
        return SourceFile(script.path, blank + script.data[start:end], writable=script.writable)


class Launch(msgspec.Struct, frozen=True):
    """One command that starts a training."""

    launcher: str
    source: SourceFile
    place: Place
    variables: Mapping[str, Field]
    """The environment that the command gets, as far as the files set it."""
    launcher_options: CommandOptions
    options: CommandOptions
    nodes: Field
    processes_per_node: Field
    world_size: Field
    program: Field
    program_kind: ProgramKind
    slurm: Mapping[str, Field]
    visible_devices: Field
    deepspeed_config: Field
    accelerate_config: Field
    framework_config: Field
    hostfile: Field
    cwd: Path
    cwd_known: bool = False
    notes: tuple[Text, ...] = ()
    framework: str | None = None
    """The training framework whose command or module the program is."""
    words: tuple[Word, ...] = ()
    statement: Place | None = None
    prefixed: frozenset[str] = frozenset()
    written_files: Mapping[str, WrittenFile] = {}
    """By their whole path."""
    in_container: bool = False
    image: Field = Field.missing()
    """What its container is made of, as ``docker run`` or ``srun --container-image`` name it."""
    container_script: Place | None = None
    """What a shell runs in that container, the launch itself in it: ``docker run IMAGE bash -c '…'``."""
    python_path: tuple[str, ...] = ()
    """The entries of ``PYTHONPATH`` that are known, as they are written."""
    python_path_complete: bool = True
    """They are all: nothing of it is another variable's that the files don't set."""
    python_path_unread: bool = False
    """More is put on it than what the caller's ``PYTHONPATH`` has, and the files don't tell what."""
    entry_function: str = ""
    """The function of the program's module that a console script of the project calls."""
    heredoc: WrittenFile | None = None
    """The program's code, for ``python - <<EOF``."""

    @property
    def line(self) -> int:
        """The line that the command begins on."""
        return self.place.line

    def variable(self, name: str) -> Field:
        """A variable of the command's environment; absent where nothing in the files sets it."""
        return self.variables.get(name, Field.missing())

    def path_of(self, field: Field) -> Path | None:
        """The file that a field names, from the folder that the command runs in; None where it is not known.

        Of a folder that is not on this machine nothing is known: a path that is counted from there names no file.
        """
        value = field.string
        path = os.path.expanduser(value) if value else ""
        return self.cwd / path if path and (os.path.isabs(path) or os.path.isdir(self.cwd)) else None

    def setting_variable(self, name: str, value: str) -> Edit:
        """An edit that gives the command this variable.

        It changes the value where the files set it, else adds ``export NAME=VALUE`` on a line before the command, or
        ``NAME=VALUE`` before a command that does not begin its line. It changes nothing where the command stands in
        no file.
        """
        field = self.variables.get(name)
        place = field.place if field is not None else None
        if place is not None and place.source.writable and place.text.startswith(f"{name}="):
            return place.edit(f"{name}={quoted(value)}")
        if not self.source.writable:
            return Place(self.source, self.place.start, self.place.start).edit("")
        statement = self.statement or self.place
        source = statement.source
        first = source.line_start(source.line_of(statement.start))
        indent = source.data[first : statement.start]
        follows = source.data[:first].rstrip(b"\r\n").endswith(b"\\")
        if indent.strip(b" \t") or follows or statement.start != self.place.start:
            start = self.place.start
            return Place(source, start, start).edit(f"{name}={quoted(value)} ")
        ending = "\r\n" if source.line_bytes(source.line_of(first)).endswith(b"\r\n") else "\n"
        blanks = indent.decode("utf-8", "surrogateescape")
        return Place(source, first, first).edit(f"{blanks}export {name}={quoted(value)}{ending}")
