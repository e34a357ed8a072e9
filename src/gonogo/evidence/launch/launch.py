"""A launch: the launcher, its program, their options and environment variables, the number of processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gonogo.evidence.field import Field
from gonogo.evidence.launch.command_line import CommandOptions, Word, quote_for_shell
from gonogo.evidence.launch.command_words import ProgramKind
from gonogo.evidence.shell.absent import MissingTarget
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Edit, Text


class WrittenFile(msgspec.Struct, frozen=True):
    """A file that the script itself writes by heredoc. ``text`` is None if unknown."""

    path: str
    text: str | None
    place: Place
    literal: bool
    """Whether the script contains the text byte for byte."""

    @property
    def source(self) -> SourceFile | None:
        """The file as a source; None if its text is unknown.

        If the script contains the text literally, this is the script with everything else blanked out, so that places
        and edits refer to the script.
        """
        if self.text is None:
            return None
        if not self.literal:
            return SourceFile.from_text(self.path, self.text)
        script, start, end = self.place.source, self.place.start, self.place.end
        blank = b"\n".join(b" " * len(line) for line in script.data[:start].split(b"\n"))
        return SourceFile(script.path, blank + script.data[start:end], writable=script.writable)


class Launch(msgspec.Struct, frozen=True):
    """A command that starts a training."""

    launcher: str
    source: SourceFile
    place: Place
    variables: Mapping[str, Field]
    """The command's environment, as far as the files set it."""
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
    """The training framework that the program's command or module belongs to."""
    words: tuple[Word, ...] = ()
    statement: Place | None = None
    prefixed: frozenset[str] = frozenset()
    written_files: Mapping[str, WrittenFile] = {}
    """By absolute path."""
    copied: Mapping[str, str] = {}
    """What the script copies, moves or links before: the new path, and the one that it is a copy of."""
    in_container: bool = False
    image: Field = Field.missing()
    """The container image, as named by ``docker run`` or ``srun --container-image``."""
    container_script: Place | None = None
    """The shell script in the container that contains the launch: ``docker run IMAGE bash -c '…'``."""
    python_path: tuple[str, ...] = ()
    """The known entries of ``PYTHONPATH``, as written."""
    python_path_complete: bool = True
    """Whether these are all: none comes from a variable that the files don't set."""
    python_path_unread: bool = False
    """Whether further entries are added to the caller's ``PYTHONPATH`` that the files don't determine."""
    entry_function: str = ""
    """The function that one of the project's console scripts calls in the program's module."""
    heredoc: WrittenFile | None = None
    """The program's code, if given by ``python - <<EOF``."""
    absent: tuple[MissingTarget, ...] = ()
    """What its script changes into or sources before, and is not here."""
    never: MissingTarget | None = None
    """What is not here, if the launch is therefore never started."""
    made_before: bool = False
    """Whether something before it may have made files: a program, ``mkdir``, ``cp``, ``>``."""

    @property
    def line(self) -> int:
        """The first line of the command."""
        return self.place.line

    def variable(self, name: str) -> Field:
        """A variable in the command's environment; absent if the files don't set it."""
        return self.variables.get(name, Field.missing())

    def path_of(self, field: Field) -> Path | None:
        """The file that a field names, relative to the command's working directory; None if unknown.

        If that directory does not exist on this machine, relative paths are unknown.
        """
        value = field.string
        path = os.path.expanduser(value) if value else ""
        whole = self.copy_source(self.cwd / path)
        return whole if path and (os.path.isabs(path) or os.path.isdir(self.cwd) or os.path.exists(whole)) else None

    def copy_source(self, path: Path) -> Path:
        """The original of a file that the script copies to ``path`` and that isn't there yet; else ``path``."""
        if not self.copied or os.path.exists(path):
            return path
        whole = os.path.normpath(path)
        for copy, source in self.copied.items():
            if whole == copy or whole.startswith(copy + os.sep):
                return Path(source + whole[len(copy) :])
        folders = {os.path.dirname(source) for copy, source in self.copied.items() if os.path.dirname(copy) == whole}
        return Path(folders.pop()) if len(folders) == 1 else path

    def setting_variable(self, name: str, value: str) -> Edit:
        """An edit that sets an environment variable for the command.

        It changes the value if the files set it; otherwise it adds ``export NAME=VALUE`` on a line before the
        command, or ``NAME=VALUE`` before a command that is not at the beginning of its line. It is empty if the
        command is in no file.
        """
        field = self.variables.get(name)
        place = field.place if field is not None else None
        if place is not None and place.source.writable and place.text.startswith(f"{name}="):
            return place.edit(f"{name}={quote_for_shell(value)}")
        if not self.source.writable:
            return Place(self.source, self.place.start, self.place.start).edit("")
        statement = self.statement or self.place
        source = statement.source
        first = source.line_start(source.line_of(statement.start))
        indent = source.data[first : statement.start]
        follows = source.data[:first].rstrip(b"\r\n").endswith(b"\\")
        if indent.strip(b" \t") or follows or statement.start != self.place.start:
            start = self.place.start
            return Place(source, start, start).edit(f"{name}={quote_for_shell(value)} ")
        ending = "\r\n" if source.line_bytes(source.line_of(first)).endswith(b"\r\n") else "\n"
        blanks = indent.decode("utf-8", "surrogateescape")
        return Place(source, first, first).edit(f"{blanks}export {name}={quote_for_shell(value)}{ending}")
