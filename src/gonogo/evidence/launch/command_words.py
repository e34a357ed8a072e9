"""Split a command line into its wrapper commands and the program, and interpret the arguments of Python."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import Literal

import msgspec

ProgramKind = Literal["script", "module", "framework"]
"""What a launcher runs: a file, ``-m MODULE``, or a framework's subcommand."""

SHELLS = ("bash", "sh", "dash", "zsh", "ksh")

# Programs that run another command, with those of their options that take a value as a separate word.
_WRAPPERS: dict[str, frozenset[str]] = {
    "env": frozenset({"-u", "--unset", "-C", "--chdir"}),
    "nohup": frozenset(),
    "time": frozenset({"-f", "--format", "-o", "--output"}),
    "exec": frozenset({"-a"}),
    "command": frozenset(),
    "nice": frozenset({"-n", "--adjustment"}),
    "ionice": frozenset({"-c", "-n", "--class", "--classdata"}),
    "setsid": frozenset(),
    "stdbuf": frozenset({"-i", "-o", "-e", "--input", "--output", "--error"}),
    "timeout": frozenset({"-k", "-s", "--kill-after", "--signal"}),
    "numactl": frozenset({"-N", "-m", "-C", "-i", "-p"}),
    "taskset": frozenset(),
}
# Number of the wrapper's own arguments between its options and the command.
_WRAPPER_ARGUMENT_COUNTS = {"timeout": 1, "taskset": 1}

# Python's options that take a value as a separate word; see `python --help`.
_PYTHON_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


class PlainCommand(msgspec.Struct, frozen=True):
    """A command without wrappers such as ``env`` or ``nohup``. ``words[0]`` is the program."""

    words: tuple[str, ...]
    environment: dict[str, str] = {}
    removed: tuple[str, ...] = ()
    cleared: bool = False
    """``env -i``: the environment is not passed on."""
    chdir: str | None = None

    @property
    def name(self) -> str:
        """The program's name without its folder; empty if there is no program."""
        return PurePath(self.words[0]).name if self.words else ""


def strip_prefix(words: Sequence[str]) -> PlainCommand:
    """The command after ``VAR=x``, ``env``, ``nohup``, ``time`` and other wrappers that only run another command."""
    rest = list(words)
    environment: dict[str, str] = {}
    removed: list[str] = []
    cleared = False
    chdir: str | None = None
    while rest:
        while rest and is_assignment(rest[0]):
            name, _, value = rest.pop(0).partition("=")
            environment[name] = value
        if not rest:
            break
        wrapper = PurePath(rest[0]).name
        if wrapper not in _WRAPPERS:
            break
        rest.pop(0)
        while rest and rest[0].startswith("-") and rest[0] != "--":
            option = rest.pop(0)
            value = rest.pop(0) if option in _WRAPPERS[wrapper] and rest else ""
            if wrapper == "env":
                if option in ("-i", "-", "--ignore-environment"):
                    cleared = True
                elif option in ("-u", "--unset"):
                    removed.append(value)
                elif option.startswith("--unset="):
                    removed.append(option.partition("=")[2])
                elif option in ("-C", "--chdir"):
                    chdir = value
                elif option.startswith("--chdir="):
                    chdir = option.partition("=")[2]
        if rest and rest[0] == "--":
            rest.pop(0)
        del rest[: _WRAPPER_ARGUMENT_COUNTS.get(wrapper, 0)]
    return PlainCommand(tuple(rest), environment, tuple(removed), cleared, chdir)


def is_assignment(word: str) -> bool:
    """Whether a word is a variable assignment: ``NAME=value``."""
    name, equals, _value = word.partition("=")
    return bool(equals) and name.isascii() and name.isidentifier()


def is_python(name: str) -> bool:
    """Whether a program's name (without its folder) is that of a Python interpreter."""
    version = name.removeprefix("python")
    return name.startswith("python") and all(part.isdecimal() for part in version.split(".") if version)


class PythonCommand(msgspec.Struct, frozen=True):
    """The program that ``python …`` runs. ``target`` is a path, a module's name, or code."""

    kind: Literal["script", "module", "code", "stdin", "none"]
    target: str = ""
    arguments: tuple[str, ...] = ()


def python_command(arguments: Sequence[str]) -> PythonCommand:
    """The program that Python runs with these arguments (``none``: it only prints, as with ``--version``)."""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in _PYTHON_OPTIONS_WITH_VALUE:
            del rest[:1]
        elif word == "-":
            return PythonCommand("stdin", arguments=tuple(rest))
        elif word.startswith("--"):
            if word in ("--version", "--help", "--help-all", "--help-env", "--help-xoptions"):
                return PythonCommand("none")
        elif word.startswith("-"):
            found = _parse_short_options(word[1:], rest)
            if found is not None:
                return found
        else:
            return PythonCommand("script", word, tuple(rest))
    return PythonCommand("stdin")


def _parse_short_options(letters: str, rest: list[str]) -> PythonCommand | None:
    """The program given by combined short options (``-um``); an option's value may be taken from ``rest``."""
    for index, letter in enumerate(letters):
        if letter in "mc":
            attached = letters[index + 1 :]
            target = attached or (rest.pop(0) if rest else "")
            return PythonCommand("module" if letter == "m" else "code", target, tuple(rest))
        if letter in "Vh?":
            return PythonCommand("none")
        if letter in "WX":
            if not letters[index + 1 :]:
                del rest[:1]
            return None
    return None


def shorten_command(words: Sequence[str], limit: int = 300) -> str:
    """A command as a user would type it, cut if it is too long."""
    text = shlex.join(words)
    return text if len(text) <= limit else text[: limit - 1] + "…"
