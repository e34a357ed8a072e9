"""Recognises which launcher a command calls, and which program that launcher runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from gonogo.evidence.field import Field
from gonogo.evidence.launch.command_line import CommandOptions, split_names
from gonogo.evidence.launch.command_words import ProgramKind, PythonCommand, is_python, python_command, strip_prefix
from gonogo.evidence.launch.launchers import LauncherDescription, find_called_launcher, runners
from gonogo.evidence.launch.launchers.slurm import SRUN
from gonogo.evidence.launch.option_parsing import parse_known_options, parse_options
from gonogo.evidence.shell.text import ShellWord
from gonogo.evidence.source_file import Place

_NON_TRAINING_MODULES = split_names(
    """
    pip venv http.server json.tool site ensurepip zipfile timeit cProfile compileall ipykernel build
    torch.utils.collect_env deepspeed.env_report bitsandbytes huggingface_hub tensorboard.main
    """
)
_UNKNOWN_TEXT_MARK = "\0"


class LauncherCall(msgspec.Struct, frozen=True):
    """A command that calls a launcher: the launcher's own options, and the program with its options."""

    launcher: str
    launcher_options: CommandOptions
    options: CommandOptions
    program: Field
    program_kind: ProgramKind
    slurm: CommandOptions | None = None
    """``srun``'s own options."""
    mpirun: CommandOptions | None = None
    environment: dict[str, tuple[str | None, ShellWord]] = {}
    """Variables assigned before the command, or given to ``env``."""
    removed: tuple[str, ...] = ()
    cleared: bool = False
    chdir: str | None = None
    in_container: bool = False
    image: ShellWord | None = None
    """The container's image, if the command names one."""
    script: ShellWord | None = None
    """A shell script that the command runs; its commands are read too."""
    code: ShellWord | None = None
    """The argument of ``bash -c``."""
    script_arguments: tuple[ShellWord, ...] = ()
    console_script: str = ""
    """The NAME of ``NAME`` or ``$(which NAME)``: a console script, possibly from a package of the project."""
    from_input: bool = False
    """``python -`` or ``bash`` without a script: the program is read from standard input, such as a heredoc."""


def parse_launcher_call(words: Sequence[ShellWord]) -> LauncherCall | None:
    """The launcher call of a command; None if it starts no program that could train."""
    rest = list(words)
    environment: dict[str, tuple[str | None, ShellWord]] = {}
    removed: tuple[str, ...] = ()
    cleared = in_container = False
    slurm = mpirun = image = None
    chdir = None
    for _ in range(12):
        texts = [_known_text(word) for word in rest]
        plain = strip_prefix(texts)
        taken = len(rest) - len(plain.words)
        for word in rest[:taken]:
            text = _known_text(word)
            name, equals, _value = text.partition("=")
            if equals and name in plain.environment:
                known = None if word.value is None else plain.environment[name]
                environment[name] = (known, word)
        removed, cleared, chdir = (*removed, *plain.removed), cleared or plain.cleared, plain.chdir or chdir
        rest = rest[taken:]
        if not rest:
            return None
        name = PurePath(rest[0].value or "").name
        if name == "srun":
            slurm, left = parse_known_options(rest[1:], SRUN)
        elif name in ("mpirun", "mpiexec"):
            mpirun, left = runners.split_mpirun_command(rest[1:])
        elif (inner := runners.wrapped_command(name, rest[1:])) is not None:
            left, in_container, image = inner.words, in_container or inner.in_container, inner.image or image
            environment.update({one: (value, rest[0]) for one, value in inner.environment.items()})
        else:
            break
        rest = list(left)
        if not rest:
            return None
    answer = _parse_known_launcher_call(rest)
    if answer is None:
        return None
    return msgspec.structs.replace(
        answer,
        slurm=slurm,
        mpirun=mpirun,
        environment=environment,
        removed=removed,
        cleared=cleared,
        chdir=chdir,
        in_container=in_container,
        image=image,
    )


def _known_text(word: ShellWord) -> str:
    """The known part of a word: enough to see whether it is an assignment or an option."""
    if word.value is not None:
        return word.value
    first = word.pieces[0].text if word.pieces else None
    return f"{first or ''}{_UNKNOWN_TEXT_MARK}"


def _parse_known_launcher_call(words: list[ShellWord]) -> LauncherCall | None:
    first = words[0]
    if first.value is None:
        return _parse_unknown_launcher(words)
    name = PurePath(first.value).name
    if name in ("bash", "sh", "zsh", "dash", "sbatch", "ksh"):
        return _parse_shell_script_call(name, words[1:])
    if name.endswith((".sh", ".slurm", ".sbatch")):
        return script_call(words)
    as_python = is_python(name) or name in ("pythonw", "ipython", "pypy3")
    found = find_called_launcher(["python" if as_python else name, *map(_known_text, words[1:])])
    if found is not None:
        launcher, at = found
        return _parse_call_of_launcher(launcher, words[at:]) if len(words) > at or not as_python else None
    if as_python:
        return _parse_python_call(words[1:])
    if name.endswith(".py"):
        return _launcher_call_of_program("python", CommandOptions(), "script", words)
    return None


def _parse_shell_script_call(name: str, words: list[ShellWord]) -> LauncherCall | None:
    rest = list(words)
    if name == "sbatch":
        slurm, left = parse_known_options(rest, SRUN)
        if not left:
            return None
        return _shell_launcher_call(script=left[0], script_arguments=left[1:], slurm=slurm)
    while rest and rest[0].value is not None and rest[0].value.startswith("-"):
        option = rest.pop(0).value or ""
        if "c" in option and not option.startswith("--"):
            if not rest:
                return None
            return _shell_launcher_call(code=rest[0], script_arguments=tuple(rest[2:]))
        if option in ("-o", "-O", "--rcfile", "--init-file") and rest:
            rest.pop(0)
    if not rest or rest[0].value == "-":
        return _shell_launcher_call(from_input=True)
    return _shell_launcher_call(script=rest[0], script_arguments=tuple(rest[1:]))


def _shell_launcher_call(**what: Any) -> LauncherCall:
    """A call of a shell script, which has no launcher of its own."""
    return LauncherCall("shell", CommandOptions(), CommandOptions(), Field.missing(), "script", **what)


def script_call(words: Sequence[ShellWord]) -> LauncherCall:
    """A command whose first word is a shell script."""
    return _shell_launcher_call(script=words[0], script_arguments=tuple(words[1:]))


def _parse_unknown_launcher(words: list[ShellWord]) -> LauncherCall | None:
    """``$LAUNCHER train.py …`` where the variable's value is unknown."""
    for index, word in enumerate(words[1:8], start=1):
        if word.value is not None and word.value.endswith(".py"):
            own = parse_options(words[:index])
            hidden = CommandOptions(own.options, own.positional, complete=False, end=own.end, words=words[:index])
            return _launcher_call_of_program("unknown", hidden, "script", words[index:])
    return None


def _parse_python_call(words: list[ShellWord]) -> LauncherCall | None:
    texts = [_known_text(word) for word in words]
    command: PythonCommand = python_command(texts)
    rest = words[len(words) - len(command.arguments) :] if command.arguments else []
    if command.kind == "module":
        if command.target.partition(".")[0] in _NON_TRAINING_MODULES or command.target in _NON_TRAINING_MODULES:
            return None
        at = len(words) - len(command.arguments) - 1
        return _launcher_call_of_program("python", CommandOptions(), "module", [words[at], *rest], command.target)
    if command.kind == "script":
        at = len(words) - len(command.arguments) - 1
        return _launcher_call_of_program("python", CommandOptions(), "script", words[at:])
    if command.kind == "stdin":
        return LauncherCall("python", CommandOptions(), parse_options(rest), Field.missing(), "script", from_input=True)
    return None


def _parse_call_of_launcher(launcher: LauncherDescription, words: list[ShellWord]) -> LauncherCall | None:
    if launcher.options is None:
        return _parse_framework_call(launcher, words)
    own, rest = parse_known_options(words, launcher.options)
    rest = _skip_unknown_words(own, rest)
    if rest != tuple(words[len(own.words) :]):
        skipped = words[: len(words) - len(rest)]
        own = CommandOptions(own.options, own.positional, complete=False, end=own.end, words=skipped)
    if not rest:
        all_known = own.complete and all(word.value is not None for word in words)
        program = Field.missing() if all_known else Field.not_known()
        return LauncherCall(launcher.name, own, CommandOptions(end=own.end), program, "script")
    kind: ProgramKind = "module" if own.get("module").known else "script"
    if own.get("no_python").known and is_python(PurePath(rest[0].value or "").name):
        inner = _parse_known_launcher_call(list(rest))
        if inner is not None:
            return msgspec.structs.replace(inner, launcher=launcher.name, launcher_options=own)
    call = _launcher_call_of_program(launcher.name, own, kind, rest)
    name = rest[0].value or ""
    if own.get("no_python").known and name and "/" not in name and not PurePath(name).suffix:
        return msgspec.structs.replace(call, console_script=name)  # resolved on PATH, as `which` would
    return call


def _skip_unknown_words(launcher_options: CommandOptions, rest: tuple[ShellWord, ...]) -> tuple[ShellWord, ...]:
    """Skip unknown words such as ``$DISTRIBUTED_ARGS`` that stand between the launcher's options and the program."""
    index = 0
    while index < len(rest) and rest[index].value is None and not rest[index].quoted:
        text = rest[index].place.text
        following = rest[index + 1].value if index + 1 < len(rest) else None
        if not text.startswith("$") or following is None or following.startswith("-"):
            break
        if not following.endswith(".py") and "/" not in following:
            break
        index += 1
    return rest[index:]


def _launcher_call_of_program(
    launcher: str,
    launcher_options: CommandOptions,
    kind: ProgramKind,
    words: Sequence[ShellWord],
    target: str | None = None,
) -> LauncherCall:
    """A launcher's call of the program that ``words`` start with."""
    word = words[0]
    if word.value is None:
        program = Field.not_known(word.place, word.reason)
    else:
        program = Field.of(target if target is not None else word.value, word.place, word.reason)
    end = word.place
    options = parse_options(words[1:], None if len(words) > 1 else Place(end.source, end.end, end.end))
    return LauncherCall(launcher, launcher_options, options, program, kind, console_script=word.program)


def console_script_call(words: Sequence[ShellWord], module: str) -> LauncherCall:
    """A command whose first word is a console script: it runs a module."""
    return _launcher_call_of_program("python", CommandOptions(), "module", words, module)


def _parse_framework_call(launcher: LauncherDescription, words: list[ShellWord]) -> LauncherCall | None:
    """``swift sft …``, ``llamafactory-cli train …``: the subcommand is the program."""
    if not words:
        return None
    command = words[0].value
    if command is not None and command not in launcher.subcommands:
        return None
    answer = _launcher_call_of_program(launcher.name, CommandOptions(), "framework", words)
    if launcher.accelerate_config:
        # These frameworks pass the launcher's own options on: read the same words as options of both.
        return msgspec.structs.replace(answer, launcher_options=answer.options)
    return answer
