"""The command of a Dockerfile's image: its last ``CMD`` or ``ENTRYPOINT``, with the variables of ``ENV``."""

from __future__ import annotations

import json
from pathlib import Path

from gonogo.evidence.shell.script_commands import ShellCommand, read_shell
from gonogo.evidence.shell.state import Variable
from gonogo.evidence.shell.text import Piece, ShellWord
from gonogo.evidence.source_file import Place, SourceFile

_READ_INSTRUCTIONS = (b"CMD", b"ENTRYPOINT", b"ENV")


def dockerfile_commands(source: SourceFile, folder: Path) -> list[ShellCommand]:
    """The commands that a container of this image runs."""
    environment: dict[str, Variable] = {}
    found: dict[bytes, tuple[int, int]] = {}
    for name, start, end in _instructions(source):
        if name == b"ENV":
            environment.update(_env_variables(source, start, end))
        else:
            found[name] = (start, end)
    entry, arguments = found.get(b"ENTRYPOINT"), found.get(b"CMD")
    if entry is None:
        return _instruction_commands(source, *arguments, folder, environment) if arguments is not None else []
    words = _parse_exec_form(source, *entry)
    if words is None:
        return _instruction_commands(source, *entry, folder, environment)
    more = _parse_exec_form(source, *arguments) if arguments is not None else None
    return [_shell_command([*words, *(more or [])], source, folder, environment)]


def _instructions(source: SourceFile) -> list[tuple[bytes, int, int]]:
    """The relevant instructions, each with the byte range of its arguments including continued lines."""
    found = []
    offset = source.start
    lines = source.data[offset:].splitlines(keepends=True)
    index = 0
    while index < len(lines):
        start = offset
        line = lines[index]
        offset += len(line)
        index += 1
        while line.rstrip().endswith(b"\\") and index < len(lines):
            line = lines[index]
            offset += len(line)
            index += 1
        text = source.data[start:offset]
        name = text.split(None, 1)[0].upper() if text.strip() else b""
        if name in _READ_INSTRUCTIONS:
            at = start + text.upper().find(name) + len(name)
            found.append((name, at, start + len(text.rstrip())))
    return found


def _env_variables(source: SourceFile, start: int, end: int) -> dict[str, Variable]:
    """``ENV NAME=value …`` and ``ENV NAME value``; a value that contains a variable is unknown."""
    found: dict[str, Variable] = {}
    position = start
    parts = source.data[start:end].split()
    if len(parts) == 2 and b"=" not in parts[0]:
        parts = [parts[0] + b"=" + parts[1]]
    for part in parts:
        name, equals, value = part.decode("utf-8", "replace").partition("=")
        at = max(source.data.find(name.encode(), position, end), start)
        position = at
        if equals and name.isidentifier():
            text = None if "$" in value else value.strip("\"'")
            stop = min(at + len(part), end)
            found[name] = Variable((Piece(text, source, at, stop),), Place(source, at, stop), exported=True)
    return found


def _parse_exec_form(source: SourceFile, start: int, end: int) -> list[ShellWord] | None:
    """The words of the exec form ``["torchrun", "train.py"]``; None if the shell form is used."""
    text = source.data[start:end].decode("utf-8", "surrogateescape")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return None
    words = []
    position = start
    for value in values:
        written = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")
        at = source.data.find(written, position, end)
        at, stop = (at, at + len(written)) if at >= 0 else (start, end)
        position = stop
        words.append(ShellWord((Piece(value, source, at, stop),), Place(source, at, stop), quoted=True))
    return words


def _shell_command(
    words: list[ShellWord], source: SourceFile, folder: Path, environment: dict[str, Variable]
) -> ShellCommand:
    place = Place(source, words[0].place.start, words[-1].place.end) if words else Place(source, 0, 0)
    return ShellCommand(tuple(words), place, place, environment, frozenset(), {}, folder, False, {})


def _instruction_commands(
    source: SourceFile, start: int, end: int, folder: Path, environment: dict[str, Variable]
) -> list[ShellCommand]:
    words = _parse_exec_form(source, start, end)
    if words is not None:
        return [_shell_command(words, source, folder, environment)]
    return read_shell(source, folder, environment=environment, part=(start, end))
