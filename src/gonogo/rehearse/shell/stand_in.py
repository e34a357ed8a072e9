"""Runs in place of a program that a launch script starts but that must not run as it is.

It is called as ``python -I stand_in.py READABLE --replaced ARGUMENTS…`` by the stub of ``interception.py``, or as ``…
--missing COMMAND…`` by bash for a command that isn't found. It records what would have been started, answers for the
virtual machine, or becomes the program itself.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Literal, NoReturn

if __name__ == "__main__":
    # Needed only if gonogo isn't installed in this Python; last, so that it shadows nothing.
    sys.path.append(str(Path(__file__).resolve().parents[3]))

from gonogo.evidence.environment.own_package import project_console_script
from gonogo.evidence.launch.command_words import SHELLS, is_python, python_command
from gonogo.evidence.launch.launchers import find_called_launcher
from gonogo.evidence.launch.launchers.runners import parse_ray_job_submit
from gonogo.rehearse.launch.launchers.captured_processes import is_python_script
from gonogo.rehearse.launch.tasks import TASK_STARTERS, host_names, task_call
from gonogo.rehearse.shell import commands
from gonogo.rehearse.shell.consumers import is_read_by_shell
from gonogo.rehearse.shell.session import ReplacedProgram, ShellSession


class StandIn:
    """Stands in for one program."""

    def __init__(self, session: ShellSession, replaced_program: ReplacedProgram) -> None:
        self._session = session
        self._path = os.path.abspath(replaced_program.path)
        self._left_out = replaced_program.left_out

    def handle_command(self, words: list[str]) -> int:
        """Handle the command ``words`` and return its exit status. May exec another program instead."""
        name = os.path.basename(words[0])
        session = self._session
        if self._left_out:
            session.record_skipped(words)
            return 0
        if find_called_launcher(words) is not None:
            return self._record_call("launch", words)
        if (job := parse_ray_job_submit(words)) is not None:
            return self._handle_ray_job(words, *job)
        if is_python(name):
            return self._handle_python(words)
        if name in SHELLS:
            self._exec_program(words)
        if name in commands.DEVICES:
            from gonogo.rehearse.shell.devices import print_smi_output

            return print_smi_output(session, name, words[1:])
        if name in commands.WRAPPER_COMMANDS:
            return self._handle_wrapped_command(words)
        if name == "scontrol" and words[1:3] in (["show", "hostnames"], ["show", "hostname"]):
            print(*host_names(words[3] if words[3:] else os.environ.get("SLURM_JOB_NODELIST", "")), sep="\n")
            return 0
        if name in commands.SLEEPS:
            return 0
        if name in commands.ARGUMENT_DEPENDENT_COMMANDS:
            return self._run_if_harmless(name, words)
        if name in commands.SKIPPED:
            session.record_skipped(words)
            return 0
        if is_python_script(self._path):
            return self._handle_python_script(words)
        self._exec_program(words, self._path)

    def _record_call(self, kind: Literal["launch", "program"], words: list[str]) -> int:
        self._session.record_call(kind, words)
        return 0

    def _exec_program(self, words: list[str], path: str | None = None) -> NoReturn:
        sys.stdout.flush()
        if path is None and os.sep not in words[0]:
            os.execvp(words[0], words)
        os.execv(path or words[0], words)

    def _handle_python(self, words: list[str]) -> int:
        """Handle ``python …``: run code and helpers, record training programs."""
        command = python_command(words[1:])
        if command.kind == "none" or (command.kind == "module" and command.target in commands.HARMLESS_MODULES):
            real = self._path if os.path.isfile(self._path) else self._session.settings.python
            self._exec_program(words, real)
        if command.kind == "module" and command.target == "pip":
            return self._run_if_harmless("pip", ["pip", *command.arguments])
        if command.kind in ("code", "stdin") or (command.kind == "script" and is_read_by_shell(1)):
            self._run_for_output(
                command.kind, "-" if command.kind == "stdin" else command.target, list(command.arguments)
            )
        return self._record_call("program", words)

    def _run_for_output(self, kind: str, target: str, arguments: list[str]) -> NoReturn:
        """Run code whose output the script needs, with torch reporting the virtual machine's devices."""
        from gonogo.rehearse.launch.python_start import python_module_command

        settings = self._session.settings
        module = "gonogo.rehearse.shell.facade"
        line = python_module_command(settings.python, module, str(self._session.readable), kind, target, *arguments)
        # Kept as it is: an empty entry of it means the working folder.
        inherited = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
        os.environ["PYTHONPATH"] = os.pathsep.join([*settings.packages, *inherited])
        os.execv(line[0], line)

    def _handle_python_script(self, words: list[str]) -> int:
        """Handle a file with a Python shebang: record the project's program, skip commands of installed packages."""
        if is_read_by_shell(1):
            self._exec_program(words, self._path)  # such as `conda shell.posix activate`: the script uses its output
        beside = os.sep in words[0] and not _is_installed(self._path)
        if beside or project_console_script(os.path.basename(words[0]), Path.cwd()) is not None:
            return self._record_call("program", words if beside else [self._path, *words[1:]])
        self._session.record_skipped(words)
        return 0

    def _handle_wrapped_command(self, words: list[str]) -> int:
        """Handle ``srun … torchrun …``: skip the wrapper and handle the command among its arguments."""
        tasks = None
        if os.path.basename(words[0]) in TASK_STARTERS:
            tasks = task_call(words, os.environ, self._session.settings.surroundings)
            os.environ.update(tasks.variables)
        for index, word in enumerate(words[1:], 1):
            name = os.path.basename(word)
            if find_called_launcher(words[index:]) is not None or is_python(name) or name in SHELLS:
                if tasks is None or find_called_launcher(words[index:]) is not None:
                    self._session.record_skipped(words[:index])
                self._path = os.path.abspath(word) if os.sep in word else name
                return self.handle_command(words[index:])
            if os.path.basename(words[0]) == "uv" and name.endswith(".py") and os.path.isfile(word):
                self._session.record_skipped(words[:index])
                return self._record_call("program", ["python", *words[index:]])
        if is_read_by_shell(1) and os.path.exists(self._path):
            self._exec_program(words, self._path)
        if tasks is not None and tasks.words and is_read_by_shell(1) and shutil.which(tasks.words[0]) is not None:
            self._exec_program(tasks.words)  # head=$(srun --ntasks=1 hostname)
        self._session.record_skipped(words)
        return 0

    def _handle_ray_job(self, words: list[str], start: int, variables: dict[str, str]) -> int:
        """Handle ``ray job submit … -- python3 …``: its command, here, with the job's variables."""
        self._session.record_skipped(words[:start])
        os.environ.update(variables)
        if not words[start:]:
            return 0
        self._path = words[start] if os.sep in words[start] else shutil.which(words[start]) or words[start]
        return self.handle_command(words[start:])

    def _run_if_harmless(self, name: str, words: list[str]) -> int:
        """Run a program for real, unless its arguments need a network or make it run forever."""
        arguments = words[1:]
        if name == "git":
            first = next((word for word in arguments if not word.startswith("-")), "")
            harmless = first not in commands.GIT_NETWORK_SUBCOMMANDS
        elif name in ("pip", "pip3"):
            harmless = bool(arguments) and arguments[0] in commands.PIP_READ_ONLY_SUBCOMMANDS
        elif name == "tail":
            harmless = not any(
                word in ("-F", "--retry") or word.startswith("--follow") or _has_short_option(word, "f")
                for word in arguments
            )
        else:
            harmless = not any(":" in word for word in arguments if not word.startswith("-"))
        if not harmless or (name not in ("pip", "pip3") and shutil.which(name) is None):
            self._session.record_skipped(words)
            return 0
        if name in ("pip", "pip3"):
            python = self._session.settings.python
            self._exec_program([python, "-m", "pip", *arguments])
        self._exec_program(words, self._path)


def _has_short_option(word: str, letter: str) -> bool:
    return word.startswith("-") and not word.startswith("--") and letter in word[1:] and not word[1:].isdecimal()


def _is_installed(path: str) -> bool:
    """Whether a script is next to an environment's Python, where installed packages put their commands."""
    folder = os.path.dirname(path)
    return os.path.basename(folder) == "bin" and any(is_python(name) for name in os.listdir(folder))


def _answer_missing_command(session: ShellSession, words: list[str]) -> int:
    """Handle a command that this machine lacks: the one that trains may have it."""
    name = words[0]
    known = find_called_launcher(words) is not None or is_python(name) or name in commands.REPLACED
    known = known or parse_ray_job_submit(words) is not None
    if known:
        return StandIn(session, ReplacedProgram(name, name)).handle_command(words)
    session.record_skipped(words)
    return 0


def main(readable: str, why: str, arguments: list[str]) -> int:
    """Handle the program that this process was about to start, or a missing command."""
    session = ShellSession(Path(readable))
    if why == "--missing":
        return _answer_missing_command(session, arguments)
    replaced = session.replaced_program()
    return StandIn(session, replaced).handle_command([replaced.name, *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
