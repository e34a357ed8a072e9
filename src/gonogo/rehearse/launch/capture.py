"""Runs a launcher's own code in a separate process, under the user's Python, to see what it would start.

The parent calls :func:`capture_launch`. The process runs :func:`main`: it reads a :class:`LaunchQuery` from stdin and
writes a :class:`CapturedLaunch` to the file named in it, because launchers print to stdout.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gonogo.confinement.confinement import raise_if_ended
from gonogo.confinement.untrusted_files import decode_untrusted, read_untrusted
from gonogo.confinement.world import World
from gonogo.evidence.launch.command_words import shorten_command
from gonogo.finding import Text, UserError, translated
from gonogo.prepare.environment_mismatch import find_project_file, project_not_installed_text
from gonogo.rehearse.launch.launch import LaunchMachine
from gonogo.rehearse.launch.launchers import Launcher, LauncherError, StartedProgram, all_launchers
from gonogo.rehearse.launch.python_start import python_module_command
from gonogo.virtual.lookups import probe_reporting

_USAGE_ERROR = 2
"""The status with which argparse ends."""


class LaunchQuery(msgspec.Struct, frozen=True):
    """Which launcher to call, with which arguments, on which machine."""

    launcher: str
    arguments: list[str]
    surroundings: LaunchMachine
    answer: str


class CapturedLaunch(msgspec.Struct, frozen=True):
    """What the launcher starts, or its own error message, or the package that is missing."""

    started: StartedProgram | None = None
    refusal: str = ""
    refused_arguments: bool = False
    """Whether the message is its parser's."""
    missing: str = ""


class LauncherRefused(UserError):
    """The launcher's own parser refuses its command line, so that it starts nothing."""

    def __init__(self, package: str, text: Text) -> None:
        super().__init__(text)
        self.package = package
        self.difference: tuple[Text, Text] | None = None
        """What of the launcher here isn't the run's, and why: another release may accept the command."""


class LauncherNotInstalled(UserError):
    """The launcher, or a package that it imports, isn't installed for the program's Python."""

    def __init__(self, package: str, text: Text) -> None:
        super().__init__(text)
        self.package = package


class LauncherNotInEnvironment(UserError):
    """The same, since the environment that gonogo made doesn't have it: what is lacking there, and why."""

    def __init__(self, package: str, what: Text, why: Text) -> None:
        self.what, self.why = what, why
        super().__init__(_LEFT_OUT.format(package=package, what=what, why=why))


_LEFT_OUT = translated("the command needs {package}, which the created environment does not have: {what}: {why}")


def capture_launch(
    launcher: Launcher,
    words: Sequence[str],
    surroundings: LaunchMachine,
    *,
    environment: Mapping[str, str],
    cwd: str,
    python: str,
    world: World,
    timeout: float,
) -> StartedProgram:
    """What a launcher's command line would start. Raises UserError if the launcher fails or isn't installed.

    The launcher's code runs in the confined ``world``.
    """
    shared = Path(tempfile.mkdtemp(prefix="launch-", dir=world.spec.shared[0]))
    answer_path = shared / "answer.json"
    arguments = launcher.arguments(words)
    if arguments is None:
        raise ValueError(f"{words} is no call of {launcher.described.name}")
    question = LaunchQuery(launcher.described.name, arguments, surroundings, str(answer_path))
    command = shorten_command(words)
    try:
        process = subprocess.run(
            world.command(python_module_command(python, "gonogo.rehearse.launch.capture")),
            input=msgspec.json.encode(question),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=world.environment({**environment, "TMPDIR": str(shared), "PYTHONDONTWRITEBYTECODE": "1"}),
            cwd=cwd,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            translated("parsing `{command}` took longer than {seconds:.0f} s: raise --timeout").format(
                command=command, seconds=timeout
            )
        ) from None
    raise_if_ended(world)
    written = read_untrusted(answer_path)
    try:
        answer = decode_untrusted(written, CapturedLaunch)
    except ValueError:
        last = process.stdout.decode(errors="replace").strip().splitlines()[-1:] or [f"status {process.returncode}"]
        raise UserError(
            translated("could not parse `{command}` with {python}: {last}").format(
                command=command, python=python, last=last[0]
            )
        ) from None
    if answer.missing:
        project = find_project_file(answer.missing, Path(cwd))
        if project is not None:
            raise UserError(project_not_installed_text(answer.missing, project))
        own = answer.missing == launcher.described.package
        raise LauncherNotInstalled(
            answer.missing,
            translated(
                "`{command}` needs {package}, which is not installed for {python}: {install} there, or start "
                "gonogo from an environment that has it"
            ).format(
                command=command,
                package=answer.missing,
                python=python,
                install=Text(f"pip install {answer.missing}", f"执行 pip install {answer.missing}")
                if own
                else translated("install it"),
            ),
        )
    if answer.started is None:
        text = translated("`{command}` failed to start: {why}").format(command=command, why=answer.refusal)
        if answer.refused_arguments:
            raise LauncherRefused(launcher.described.package, text)
        raise UserError(text)
    return answer.started


def run_launcher(request: LaunchQuery) -> CapturedLaunch:
    """Run the launcher's own code. Called in a separate process.

    accelerate's imports DeepSpeed; names that an older DeepSpeed imports are restored, as they are for the ranks.
    """
    from gonogo.virtual.hooks import older_deepspeed

    older_deepspeed.install(lambda _: None)
    launcher = next(launcher for launcher in all_launchers() if launcher.described.name == request.launcher)
    printed = io.StringIO()
    sys.argv = [request.launcher, *request.arguments]
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            return CapturedLaunch(started=launcher.start(list(request.arguments), request.surroundings))
    except LauncherError as refusal:
        return CapturedLaunch(refusal=str(refusal))
    except ModuleNotFoundError as error:
        return _import_failure(error)
    except ValueError as error:
        return CapturedLaunch(refusal=str(error))
    except SystemExit as ended:
        lines = [line for line in printed.getvalue().splitlines() if line.strip()]
        if ended.code in (0, None):
            return CapturedLaunch(refusal="it only prints its help")
        last = lines[-1] if lines else f"it ends with status {ended.code}"
        return CapturedLaunch(refusal=last, refused_arguments=ended.code == _USAGE_ERROR)


def _import_failure(error: BaseException) -> CapturedLaunch:
    """The missing package, or else the first cause: transformers hides both behind an error without a name."""
    while True:
        if isinstance(error, ModuleNotFoundError) and error.name:
            return CapturedLaunch(missing=error.name)
        if error.__cause__ is None:
            return CapturedLaunch(refusal=f"{type(error).__name__}: {error}")
        error = error.__cause__


def main() -> None:
    """Read the query, run the launcher, write the answer."""
    probe_reporting.install()
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=LaunchQuery)
    answer = run_launcher(question)
    Path(question.answer).write_bytes(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
