"""A program that is a launcher of its project's own: it starts the training by a command, and trains nothing itself.

Where the command calls a launcher (``torchrun``, ``deepspeed``, ``accelerate launch``), the program ends there, and the
rehearsal goes on with that command. A Python program is started as it is and noted: if this one then ends without
having used an accelerator, that was the training.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gonogo.evidence.launch.command_words import is_python, python_command
from gonogo.evidence.launch.launchers import find_called_launcher
from gonogo.evidence.rehearsal.record import StartedCommand
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.protocol.plan import WorkerPlan

_SEPARATORS = frozenset({"&&", "||", ";", "|", "&", "(", ")"})
_OWN_VARIABLES = frozenset({"PYTHONPATH"})
"""Variables that gonogo changes for the processes that a program starts."""


class TrainingLaunched(BaseException):
    """Raised where the program would call a launcher."""

    def __init__(self, command: StartedCommand) -> None:
        super().__init__(" ".join(command.words))
        self.command = command


class StartedCommands:
    """The commands that a program starts, as far as they may be its training."""

    def __init__(self, plan: WorkerPlan, used_accelerator: Callable[[], bool]) -> None:
        self._own_launch = plan.world_size == 1 and not plan.started_by_program and plan.rank == 0
        self._used_accelerator = used_accelerator
        self._programs: list[StartedCommand] = []
        self._environment: dict[str, str] = {}

    def install(self) -> Callable[[], None]:
        """Watch what the program starts; returns the undo."""
        patches = Patches()
        if not self._own_launch:
            return patches.undo
        self._environment = dict(os.environ)
        create: Any = subprocess.Popen.__init__
        system = os.system

        def create_process(process: Any, args: Any, *rest: Any, **options: Any) -> None:
            shell = options.get("shell", rest[7] if len(rest) > 7 else False)
            folder = options.get("cwd", rest[8] if len(rest) > 8 else None)
            variables = options.get("env", rest[9] if len(rest) > 9 else None)
            self._consider(args, folder, variables, shell=bool(shell))
            create(process, args, *rest, **options)

        def run_in_shell(command: Any) -> int:
            self._consider(command, None, None, shell=True)
            return system(command)

        patches.set(subprocess.Popen, "__init__", create_process)
        patches.set(os, "system", run_in_shell)
        for name in ("execv", "execve", "execvp", "execvpe"):
            patches.set(os, name, self._replacing(getattr(os, name)))
        return patches.undo

    def training(self) -> StartedCommand | None:
        """The command that was the training of a program that has used no accelerator itself; None if there is none.

        Of several programs it is the last, after what prepares it; of several processes of one program, the first.
        """
        if not self._programs or self._used_accelerator():
            return None
        last = self._programs[-1].program
        return next(one for one in self._programs if one.program == last)

    def _replacing(self, function: Any) -> Any:
        def replace_process(path: Any, args: Any, *environment: Any) -> Any:
            words = [path, *list(args)[1:]]
            self._consider(words, None, environment[0] if environment else None, shell=False, replaces=True)
            return function(path, args, *environment)

        return replace_process

    def _consider(self, command: Any, folder: Any, variables: Any, *, shell: bool, replaces: bool = False) -> None:
        words = _words_of(command, shell=shell)
        if words is None or self._used_accelerator():
            return
        for inner in _commands_in(words[-1]) if shell else [words]:
            program = _program_of(inner, os.fspath(folder) if folder is not None else os.getcwd())
            launcher = _calls_launcher(inner)
            if program is None and not launcher:
                continue
            started = self._described(words, program or inner[0], folder, variables)
            if launcher or replaces:
                raise TrainingLaunched(started)
            self._programs.append(started)
            return

    def _described(self, words: list[str], program: str, folder: Any, variables: Any) -> StartedCommand:
        given: Mapping[Any, Any] = os.environ if variables is None else variables
        named = {os.fsdecode(name): os.fsdecode(value) for name, value in given.items()}
        changed = {
            name: value
            for name, value in named.items()
            if self._environment.get(name) != value and name not in _OWN_VARIABLES
        }
        return StartedCommand(
            words, os.path.abspath(os.fspath(folder) if folder is not None else "."), program, changed
        )


def _words_of(command: Any, *, shell: bool) -> list[str] | None:
    """The words of a command as it is given to subprocess; None if it isn't one."""
    try:
        if isinstance(command, str | bytes | os.PathLike):
            text = os.fsdecode(command)
            return ["bash", "-c", text] if shell else [text]
        words = [os.fsdecode(word) for word in command]
    except TypeError:
        return None
    return (["bash", "-c", words[0]] if shell else words) if words else None


def _commands_in(text: str) -> list[list[str]]:
    """The simple commands in a line of shell, without the variables that are set before them."""
    try:
        lexer = shlex.shlex(text.replace("\\\n", " ").replace("\n", ";"), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return []
    commands: list[list[str]] = [[]]
    for word in words:
        if word in _SEPARATORS:
            commands.append([])
        elif commands[-1] or not word.partition("=")[0].isidentifier() or "=" not in word:
            commands[-1].append(word)
    return [one for one in commands if one]


def _calls_launcher(words: Sequence[str]) -> bool:
    """Whether a command calls a launcher of processes, with a subcommand that trains if it has some."""
    called = find_called_launcher(words)
    if called is None:
        return False
    launcher, at = called
    return not launcher.subcommands or bool(launcher.subcommands.intersection(words[at : at + 1]))


def _program_of(words: Sequence[str], folder: str) -> str | None:
    """The Python program that a command runs, if it is a file; None for anything else."""
    if not is_python(os.path.basename(words[0])):
        return None
    python = python_command(words[1:])
    if python.kind == "script":
        path = os.path.join(folder, python.target)
    elif python.kind == "module":
        path = os.path.join(folder, f"{python.target.replace('.', '/')}.py")
    else:
        return None
    return os.path.realpath(path) if os.path.isfile(path) else None
