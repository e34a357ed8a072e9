"""What runs where a launch script calls a program that gonogo stands in for.

Started as ``python -I stand_in.py SESSION NAME ARGUMENTS…`` by the one-line scripts in the session's ``bin``. It takes
down what would have been started, or does what the program would have done to files in the session's folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # Needed only where gonogo isn't installed in this Python; last, so that it shadows nothing.
    sys.path.append(str(Path(__file__).resolve().parents[3]))

from gonogo.evidence.launch.launchers import launcher_called
from gonogo.evidence.launch.words import SHELLS, is_python, python_command
from gonogo.rehearse.shell import commands
from gonogo.rehearse.shell.session import ScriptCommand, ShellSession


def main(session: ShellSession, words: list[str]) -> int:
    """Stand in for ``words``; answers the exit status. May replace the process by another program."""
    name = os.path.basename(words[0])
    if name == "__gonogo_path":
        return by_path(session, words[1:])
    if launcher_called(words) is not None:
        return take_down(session, "launch", words)
    if is_python(name):
        return python(session, words)
    if name in SHELLS:
        from gonogo.rehearse.shell.nested import run_shell

        return run_shell(session, words)
    if name == "__gonogo_source":
        from gonogo.rehearse.shell.nested import prepare_source

        return prepare_source(session, " ".join(words[1:]))
    if name == "__gonogo_rewrite":
        from gonogo.rehearse.shell.nested import prepare_eval

        return prepare_eval(session, " ".join(words[1:]))
    if name in ("nvidia-smi", "npu-smi"):
        from gonogo.rehearse.shell.devices import answer_smi

        return answer_smi(session, name, words[1:])
    if name in commands.PASSED_THROUGH:
        return pass_through(session, words)
    from gonogo.rehearse.shell.file_commands import stand_in_for

    return stand_in_for(session, name, words)


def take_down(session: ShellSession, kind: str, words: list[str]) -> int:
    """Record a program that would have been started."""
    environment = session.outer_environment(os.environ)
    session.call(ScriptCommand("launch" if kind == "launch" else "program", words, environment, os.getcwd()))
    return 0


def python(session: ShellSession, words: list[str]) -> int:
    """``python …``: code and helpers run, training programs are taken down."""
    command = python_command(words[1:])
    if command.kind == "none" or (command.kind == "module" and command.target in commands.HARMLESS_MODULES):
        real = session.settings.python
        os.execv(real, [words[0], *words[1:]])
    if command.kind == "module" and command.target == "pip":
        from gonogo.rehearse.shell.file_commands import stand_in_for

        return stand_in_for(session, "pip", ["pip", *command.arguments])
    helper = command.kind == "script" and "GONOGO_SUBSTITUTION" in os.environ
    if command.kind in ("code", "stdin") or helper:
        from gonogo.rehearse.launch.python_start import python_module

        target = "-" if command.kind == "stdin" else command.target
        line = python_module(
            session.settings.python,
            "gonogo.rehearse.shell.facade",
            *(str(session.folder), command.kind, target, *command.arguments),
        )
        paths = [*session.settings.packages, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        os.execv(line[0], line)
    return take_down(session, "program", words)


def by_path(session: ShellSession, words: list[str]) -> int:
    """A command that is called by a path."""
    from gonogo.rehearse.launch.started import is_python_script

    path, name = words[0], os.path.basename(words[0])
    if launcher_called(words) is not None or is_python(name):
        return main(session, words)
    written = session.place(path, os.getcwd())
    real = str(written) if written.is_file() else path
    if os.path.dirname(os.path.abspath(path)) in (*_SYSTEM_FOLDERS, *session.settings.path.split(os.pathsep)):
        stand_in = session.bin / name
        if stand_in.exists():
            os.execv(stand_in, [str(stand_in), *words[1:]])
    if not os.path.isfile(real):
        print(f"{path}: {'Is a directory' if os.path.isdir(real) else 'No such file or directory'}", file=sys.stderr)
        return 126 if os.path.isdir(real) else 127
    if not written.is_file() and not os.access(real, os.X_OK):
        print(f"{path}: Permission denied", file=sys.stderr)
        return 126
    if is_python_script(real):
        return python(session, ["python", *words])
    from gonogo.rehearse.shell.nested import is_shell_script, run_shell

    if is_shell_script(real):
        return run_shell(session, ["bash", *words])
    session.leave_out(words)
    return 0


_SYSTEM_FOLDERS = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")


def pass_through(session: ShellSession, words: list[str]) -> int:
    """``srun … torchrun …``: the command among the arguments is taken for the whole."""
    for index, word in enumerate(words[1:], 1):
        name = os.path.basename(word)
        if launcher_called(words[index:]) is not None or is_python(name) or name in SHELLS:
            session.leave_out(words[:index])
            return main(session, words[index:])
    session.leave_out(words)
    return 0


if __name__ == "__main__":
    sys.exit(main(ShellSession(Path(sys.argv[1])), sys.argv[2:]))
