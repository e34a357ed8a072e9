"""Runs a launch script and returns what it would have started."""

from __future__ import annotations

import contextlib
import os
import random
import re
import selectors
import shutil
import signal
import string
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gonogo.confinement.confinement import Confinement, raise_if_ended
from gonogo.confinement.trees import mirror_folder
from gonogo.confinement.world import World
from gonogo.evidence.launch.command_words import SHELLS, shorten_command
from gonogo.finding import Text, UserError, translated
from gonogo.rehearse.launch.launch import LaunchMachine
from gonogo.rehearse.shell.interception import Interception, write_stub
from gonogo.rehearse.shell.session import ScriptCommand, ShellSession
from gonogo.rehearse.shell.unreached import UnreachedCommands

# The time that a script gets after its first launch: for the next stage, a wait, a copy of the results.
_SECONDS_AFTER_LAUNCH = 10.0
# The time in which programs that a script leaves in the background are still recorded.
_BACKGROUND_QUIET_SECONDS = 5.0
_MAX_OUTPUT_BYTES = 1 << 20
# Names in the world's root folder, so that no program's path is shorter.
_STUB, _BASH = "g", "b"
# Folders of the training machine's own software, which may not exist here.
_SYSTEM_FOLDERS = ("/usr/", "/opt/", "/etc/")
_MISSING_SCRIPT_PATTERN = re.compile(
    r": line \d+: (/[^:]+\.sh|/[^:]*/(?:activate|setenv|set_env|profile)[^:/]*): No such file or directory$"
)


@dataclass(frozen=True)
class ScriptRun:
    """The result of running a script. ``tree`` mirrors the root folder, with what the script changed."""

    calls: tuple[ScriptCommand, ...]
    skipped: tuple[list[str], ...]
    tree: Path
    status: int
    output: tuple[str, ...]
    """The last lines of its output."""


def is_script_call(words: Sequence[str]) -> bool:
    """Whether a command runs a shell, or a shell script by its path."""
    name = os.path.basename(words[0])
    return name in SHELLS or (os.sep in words[0] and os.path.isfile(words[0]) and is_shell_script(words[0]))


def is_shell_script(path: str) -> bool:
    """Whether a file is a bash or sh script: by its shebang or, without one, because it is text."""
    try:
        with open(path, "rb") as file:
            start = file.read(512)
    except OSError:
        return False
    first = start.split(b"\n", 1)[0]
    if first.startswith(b"#!"):
        interpreter = first[2:].strip().replace(b"/usr/bin/env", b"").split()
        return any(word.rpartition(b"/")[2] in (b"bash", b"sh", b"dash") for word in interpreter)
    return b"\0" not in start


def run_script(
    words: Sequence[str],
    surroundings: LaunchMachine,
    *,
    confinement: Confinement,
    environment: Mapping[str, str],
    cwd: str,
    python: str,
    packages: Sequence[Path] = (),
    prepared: Path | None = None,
    timeout: float,
) -> ScriptRun:
    """Run a script unchanged in a world of its own, and record what it would start.

    ``prepared`` is a tree of files that it finds in addition to the real ones. Raises UserError for a script that
    doesn't exist, that bash can't parse, that can't be followed, or that starts nothing.
    """
    bash = shutil.which("bash", path=environment.get("PATH", os.defpath)) or shutil.which("bash")
    if bash is None:
        raise UserError(
            translated("`{command}` needs bash, which is not on PATH: give the launch command itself").format(
                command=shorten_command(words)
            )
        )
    words = _bash_command(words)
    _check_script(words, bash, cwd)
    deadline = time.monotonic() + timeout
    missing_files: list[str] = []
    unreached = UnreachedCommands()
    while True:
        session = ShellSession.create(
            confinement.readable, confinement.shared, surroundings, python, [str(path) for path in packages]
        )
        own = Path(tempfile.mkdtemp(prefix="script-", dir=confinement.scratch))
        _write_own_files(own, session, bash, missing_files)
        interception = Interception(session, unreached)
        unreached.begin_run()
        with (
            confinement.world(below=[own], prepared=prepared, on_call=interception.inspect_call) as world,
            _ShortPaths(world, own) as short,
        ):
            interception.stub, interception.bash = short.stub, short.bash
            interception.has_namespaces = world.has_overlay
            status, output = _run(world, session, interception, unreached, words, bash, environment, cwd, deadline)
            raise_if_ended(world)
        failure = interception.failure
        if failure is not None:
            raise UserError(
                translated("gonogo can't trace `{command}`: {failure}; give the launch command itself").format(
                    command=shorten_command(words), failure=failure
                )
            )
        if unreached.has_failed and time.monotonic() < deadline:
            continue
        skipped = [*session.skipped(), *(["source", path] for path in missing_files)]
        run = ScriptRun(tuple(session.calls()), tuple(skipped), world.tree, status, output)
        if run.calls:
            return run
        missing = [path for path in _missing_sourced_files(output) if path not in missing_files]
        if not missing or time.monotonic() > deadline:
            raise _nothing_launched_error(words, run, timeout)
        missing_files += missing  # with `set -e` it ended here, but the machine that trains has that file


def _bash_command(words: Sequence[str]) -> list[str]:
    """The command that runs a script with bash. Raises UserError for other shells than bash, sh and dash."""
    name = os.path.basename(words[0])
    if name in SHELLS and name not in ("bash", "sh", "dash"):
        raise UserError(
            translated("{shell} scripts can't be rehearsed, only bash and sh: give the launch command itself").format(
                shell=name
            )
        )
    return list(words) if name in SHELLS else ["bash", *words]


def _check_script(words: Sequence[str], bash: str, cwd: str) -> None:
    script = next((word for word in words[1:] if not word.startswith(("-", "+"))), None)
    if script is None or any(word.startswith("-") and not word.startswith("--") and "c" in word for word in words[1:2]):
        return
    path = os.path.join(cwd, script)
    if not os.path.isfile(path):
        what = translated("is a directory") if os.path.isdir(path) else translated("does not exist")
        raise UserError(
            translated("the script {script} {what} (looked for in {cwd})").format(script=script, what=what, cwd=cwd)
        )
    parsed = subprocess.run([bash, "-n", path], capture_output=True, cwd=cwd, stdin=subprocess.DEVNULL, check=False)
    if parsed.returncode != 0:
        message = parsed.stderr.decode(errors="replace").strip().splitlines()
        first = message[0].removeprefix(f"{path}: ") if message else f"status {parsed.returncode}"
        raise UserError(translated("bash can't parse {script}: {message}").format(script=script, message=first))


class _ShortPaths:
    """Paths of the stub and of bash that are short enough to overwrite any program's path."""

    def __init__(self, world: World, tree_folder: Path) -> None:
        self.stub, self.bash = f"/{_STUB}", f"/{_BASH}"
        self._outside: list[Path] = []
        if not world.has_overlay:  # without an overlay, the world shares the real root folder
            stub = _new_short_file("/tmp")
            shutil.copy(tree_folder / _STUB, stub)
            self._outside.append(stub)
            self.stub, self.bash = str(stub), os.path.realpath(tree_folder / _BASH)

    def __enter__(self) -> _ShortPaths:
        return self

    def __exit__(self, *error: object) -> None:
        for path in self._outside:
            path.unlink(missing_ok=True)


def _new_short_file(folder: str) -> Path:
    """A new file with as short a name as possible: its path must fit in the place of ``/usr/bin/git``."""
    for length in range(1, 9):
        for _ in range(40):
            path = Path(folder, "".join(random.choices(string.ascii_letters + string.digits, k=length)))
            with contextlib.suppress(FileExistsError):
                path.touch(0o700, exist_ok=False)
                return path
    raise FileExistsError(folder)


def _write_own_files(tree_folder: Path, session: ShellSession, bash: str, missing_files: Sequence[str]) -> None:
    """Write the files below the script's world: the stub, a link to bash, and empty files for missing software."""
    write_stub(tree_folder / _STUB, session)
    (tree_folder / _BASH).symlink_to(os.path.realpath(bash))
    for path in missing_files:
        (mirror_folder(tree_folder, os.path.realpath(os.path.dirname(path))) / os.path.basename(path)).touch()


def _missing_sourced_files(output: Sequence[str]) -> list[str]:
    """Missing files of the training machine's own software that the script sources."""
    found = []
    for line in output:
        match = _MISSING_SCRIPT_PATTERN.search(line)
        if match is not None and match[1].startswith(_SYSTEM_FOLDERS):
            found.append(match[1])
    return found


def _run(
    world: World,
    session: ShellSession,
    interception: Interception,
    unreached_commands: UnreachedCommands,
    words: Sequence[str],
    bash: str,
    environment: Mapping[str, str],
    cwd: str,
    deadline: float,
) -> tuple[int, tuple[str, ...]]:
    """Run the script to its end; returns its status (-9 if it was killed) and its last lines of output."""
    process = subprocess.Popen(
        world.command([bash, *words[1:]], traced=True),
        env=world.environment(session.environment(environment)),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = bytearray()
    launched_at: float | None = None
    ended_at: float | None = None
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if selector.select(timeout=0.05):
                    block = os.read(process.stdout.fileno(), 1 << 16)
                    if not block:  # the script and its background programs, except daemons, have ended
                        quiet = (
                            min(deadline, time.monotonic() + _BACKGROUND_QUIET_SECONDS)
                            if interception.has_daemons
                            else 0.0
                        )
                        while not session.has_launched and time.monotonic() < quiet:
                            time.sleep(0.05)
                        break
                    output += block
                    del output[:-_MAX_OUTPUT_BYTES]
                now = time.monotonic()
                if launched_at is None and session.has_launched:
                    launched_at = now
                if ended_at is None and process.poll() is not None:
                    ended_at = now
                if ended_at is not None and now > ended_at + _BACKGROUND_QUIET_SECONDS:
                    break
                if launched_at is not None and now > launched_at + _SECONDS_AFTER_LAUNCH:
                    break
                if interception.failure is not None or unreached_commands.has_failed:
                    break
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        status = process.wait()
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return status, tuple(lines[-20:])


def _nothing_launched_error(words: Sequence[str], run: ScriptRun, timeout: float) -> UserError:
    last = "; ".join(line.strip()[:200] for line in run.output[-2:])
    text = translated(": {last}").format(last=last) if last else Text("", "")
    command = shorten_command(words)
    if run.status == -signal.SIGKILL:
        return UserError(
            translated(
                "`{command}` had not started training after {seconds:.0f} s (its output so far{said}): give "
                "the launch command itself, or a longer --timeout"
            ).format(command=command, seconds=timeout, said=text)
        )
    if run.status != 0:
        return UserError(
            translated("`{command}` ended with status {status} before it started training{said}").format(
                command=command, status=run.status, said=text
            )
        )
    others = "; ".join(shorten_command(words, 80) for words in run.skipped[:4])
    hint = translated("; it was not run: {others}").format(others=others)
    return UserError(
        translated(
            "`{command}` ended without starting a training (deepspeed, torchrun, accelerate launch or "
            "python){said}{hint}"
        ).format(command=command, said=text, hint=hint if others else "")
    )
