"""Resolves the command that the user types to a program and the processes in which it is started."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from gonogo.confinement.confinement import Confinement
from gonogo.confinement.world import World
from gonogo.evidence.environment.own_package import project_console_script
from gonogo.evidence.launch.command_words import SHELLS, is_python, python_command, shorten_command, strip_prefix
from gonogo.evidence.launch.launchers import find_called_launcher
from gonogo.evidence.launch.launchers.runners import parse_ray_job_submit
from gonogo.evidence.launch.launchers.slurm import SRUN
from gonogo.evidence.launch.option_parsing import parse_known_options
from gonogo.evidence.launch.reading import typed_words
from gonogo.evidence.number import parse_whole_number
from gonogo.finding import Text, UserError, translated
from gonogo.prepare.environment_mismatch import find_project_file, project_not_installed_text
from gonogo.rehearse.launch.capture import capture_launch
from gonogo.rehearse.launch.launch import LaunchedProcess, LaunchMachine, ProgramKind, ResolvedLaunch
from gonogo.rehearse.launch.launchers import all_launchers, find_launcher
from gonogo.rehearse.launch.launchers.captured_processes import is_python_script
from gonogo.rehearse.launch.tasks import job_variables, task_processes
from gonogo.rehearse.launch.worker_environment import with_packages
from gonogo.rehearse.shell.commands import WRAPPER_COMMANDS
from gonogo.rehearse.shell.run_script import ScriptRun, is_script_call, run_script
from gonogo.rehearse.shell.session import ScriptCommand

_MAX_BYTES = 1 << 20
_VARIABLE_REFERENCE_PATTERN = re.compile(r"(?<!\\)\$(?:\{#?([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_SET_VARIABLE_PATTERN = re.compile(
    r"(?:^|[\s;&|({`])([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=|\bfor\s+([A-Za-z_]\w*)\b|\$\{([A-Za-z_]\w*):?[=?-]"
    r"|\bprintf\s+-v\s+([A-Za-z_]\w*)",
    re.MULTILINE,
)
_READ_BUILTIN_PATTERN = re.compile(r"\b(?:read|getopts|mapfile|readarray)\b([^\n;|]*)")
_BASH_VARIABLES_PATTERN = re.compile(
    r"BASH.*|RANDOM|SECONDS|LINENO|FUNCNAME|PIPESTATUS|OPTARG|OPTIND|UID|EUID|PPID|HOSTNAME|HOSTTYPE|OSTYPE|MACHTYPE"
    r"|PWD|OLDPWD|IFS|REPLY|SHELL|SHLVL|HOME|PATH|USER|TERM|LANG|EPOCHSECONDS|DIRSTACK|GROUPS"
)


@dataclass(frozen=True)
class CommandContext:
    """The context in which a command is resolved."""

    surroundings: LaunchMachine
    environment: dict[str, str]
    cwd: str
    confinement: Confinement
    timeout: float
    made: Path | None = None
    """A tree of files that were generated for the launch."""
    packages: tuple[Path, ...] = ()
    """Folders of overlaid packages."""
    python: str = sys.executable
    """The interpreter that ``python`` names."""
    in_script: ScriptRun | None = None
    trees: tuple[Path, ...] = ()
    """Trees of the changes that a program made before it started the command."""

    @property
    def earlier_trees(self) -> tuple[Path, ...]:
        """Trees of the changes made before the command."""
        return self.trees if self.in_script is None else (self.in_script.tree, *self.trees)

    def world(self) -> AbstractContextManager[World]:
        """A world with the files that the command finds."""
        return self.confinement.world(below=self.earlier_trees, prepared=self.made)


@dataclass(frozen=True)
class ResolvedCommand:
    """A launch, what was left out on the way to it as (what, why), and what a script changed before it."""

    launch: ResolvedLaunch
    skipped: tuple[tuple[Text, Text], ...] = ()
    below: tuple[Path, ...] = ()
    """Trees that mirror the root folder, with the changes of a launch script."""


@dataclass(frozen=True)
class _Interpreter:
    """The Python that runs the program, and the one that the command names if that is another."""

    path: str
    named: str | None = None
    notes: tuple[Text, ...] = field(default=())


def resolve(command: Sequence[str], situation: CommandContext) -> ResolvedCommand:
    """The launch that a command starts. Raises UserError if it starts none that can be rehearsed."""
    plain = strip_prefix(command)
    environment = {} if plain.cleared else dict(situation.environment)
    for name in plain.removed:
        environment.pop(name, None)
    environment.update(plain.environment)
    cwd = os.path.normpath(os.path.join(situation.cwd, plain.chdir)) if plain.chdir else situation.cwd
    situation = replace(situation, environment=environment, cwd=cwd)
    words = list(plain.words)
    if not words:
        raise _unsupported_command_error(command)
    _check_encoding(words, environment, cwd)
    if find_launcher(words) is not None:
        return ResolvedCommand(_resolve_launch(words, situation))
    if is_python(plain.name):
        return ResolvedCommand(_resolve_python(words, situation))
    path = words[0] if os.sep in words[0] else shutil.which(words[0], path=environment.get("PATH", os.defpath))
    if situation.in_script is None and is_script_call(
        [os.path.join(cwd, words[0]), *words[1:]] if os.sep in words[0] else words
    ):
        return _resolve_script(words, situation)
    if situation.in_script is None and plain.name == "sbatch" and (job := _submitted_job(words)) is not None:
        return _resolve_script(job, situation)
    if situation.in_script is None and (
        os.path.basename(words[0]) in WRAPPER_COMMANDS or parse_ray_job_submit(words) is not None
    ):
        # As in a script: what stands in for these programs hands their command on.
        return _resolve_script(["bash", "-c", shlex.join(words)], situation)
    if (own := project_console_script(words[0], Path(cwd))) is not None:
        path = _find_project_command(words[0], own, environment.get("PATH", os.defpath))
        if path is None:
            raise UserError(_PROJECT_NOT_INSTALLED.format(name=words[0]))
    if path is not None and is_python_script(os.path.join(cwd, path)):
        return ResolvedCommand(
            _resolve_without_launcher("script", path, tuple(words[1:]), situation, _Interpreter(situation.python))
        )
    if os.sep in words[0] and not os.path.isfile(os.path.join(cwd, words[0])):
        _check_program("script", words[0], situation)
    raise _unsupported_command_error(command)


def _submitted_job(words: Sequence[str]) -> list[str] | None:
    """The shell's call of the script that ``sbatch`` submits, as a node runs it; None without a script."""
    typed, _ = typed_words(words)
    _, left = parse_known_options(typed[1:], SRUN)
    return ["bash", *words[len(words) - len(left) :]] if left else None


def _find_project_command(name: str, entry_point: str, path: str) -> str | None:
    """The first command of that name that starts the project's own module, and not another package's."""
    for folder in path.split(os.pathsep):
        found = Path(folder, name)
        with contextlib.suppress(OSError):
            if entry_point.partition(":")[0] in found.read_text(encoding="utf-8", errors="replace"):
                return str(found)
    return None


_PROJECT_NOT_INSTALLED = translated(
    "{name} is a command of this project's own package, which is not installed: run gonogo prepare -- "
    "COMMAND, or pip install -e . --no-deps"
)


def _unsupported_command_error(command: Sequence[str]) -> UserError:
    examples = [launcher.described.example for launcher in all_launchers()]
    forms = "; ".join([*examples, "python train.py", "bash launch.sh"])
    return UserError(
        translated("can't rehearse `{command}`: use one of these forms: {forms}").format(
            command=shorten_command(command), forms=forms
        )
    )


def _resolve_launch(words: list[str], situation: CommandContext) -> ResolvedLaunch:
    found = find_launcher(words)
    assert found is not None
    launcher, _ = found
    interpreter = _find_interpreter(words[0], situation)
    with situation.world() as world:
        started = capture_launch(
            launcher,
            words,
            situation.surroundings,
            environment=with_packages(situation.environment, situation.packages),
            cwd=situation.cwd,
            python=interpreter.path,
            world=world,
            timeout=situation.timeout,
        )
    _check_program(started.program_kind, started.program, situation)
    return ResolvedLaunch(
        launcher=launcher.described.name,
        program_kind=started.program_kind,
        program=started.program,
        nodes=started.nodes,
        processes=started.processes,
        environment=situation.environment,
        cwd=situation.cwd,
        interpreter=interpreter.path,
        notes=(*(Text(*note) for note in started.notes), *interpreter.notes),
    )


def _resolve_python(words: list[str], situation: CommandContext) -> ResolvedLaunch:
    command = python_command(words[1:])
    if command.kind == "script" or command.kind == "module":
        interpreter = _find_interpreter(words[0], situation)
        return _resolve_without_launcher(command.kind, command.target, command.arguments, situation, interpreter)
    raise UserError(
        translated("`{command}` has no program file: put the code into a file, for example: python train.py").format(
            command=shorten_command(words)
        )
    )


def _resolve_without_launcher(
    kind: ProgramKind, program: str, arguments: tuple[str, ...], situation: CommandContext, interpreter: _Interpreter
) -> ResolvedLaunch:
    """A program without a launcher: one process, or as many as its environment variables describe."""
    _check_program(kind, program, situation)
    environment = situation.environment
    if (tasks := task_processes(environment, arguments, situation.surroundings)) is not None:
        return ResolvedLaunch(
            launcher="srun" if "SLURM_STEP_NUM_TASKS" in environment else "mpirun",
            program_kind=kind,
            program=program,
            nodes=tasks[-1].node + 1,
            processes=tuple(tasks),
            environment=environment,
            cwd=situation.cwd,
            interpreter=interpreter.path,
            notes=interpreter.notes,
        )
    world = _positive_integer(environment.get("WORLD_SIZE")) if "RANK" in environment else None
    count = max(situation.surroundings.visible_count(environment), 1)
    local_world = _positive_integer(environment.get("LOCAL_WORLD_SIZE")) or min(world or 1, count)
    processes = []
    for rank in range(world or 1):
        place = {} if world is None else {"RANK": str(rank), "LOCAL_RANK": str(rank % local_world)}
        processes.append(
            LaunchedProcess(
                rank=rank,
                local_rank=rank % local_world,
                world_size=world or 1,
                local_world_size=local_world,
                node=rank // local_world,
                arguments=arguments,
                environment=place,
            )
        )
    return ResolvedLaunch(
        launcher="python",
        program_kind=kind,
        program=program,
        nodes=processes[-1].node + 1,
        processes=tuple(processes),
        environment=environment,
        cwd=situation.cwd,
        interpreter=interpreter.path,
        notes=interpreter.notes,
    )


def _positive_integer(text: str | None) -> int | None:
    return parse_whole_number(text) or None


def _check_program(kind: ProgramKind, program: str, situation: CommandContext) -> None:
    """Raise UserError for a script or module that doesn't exist."""
    if kind == "module":
        _check_module(program, situation)
        return
    path = os.path.join(situation.cwd, program)
    if any(os.path.isfile(f"{tree}{os.path.normpath(path)}") for tree in situation.earlier_trees):
        return
    if os.path.isdir(path) and os.path.isfile(os.path.join(path, "__main__.py")):
        return
    if not os.path.isfile(path):
        what = translated("is a directory") if os.path.isdir(path) else translated("does not exist")
        raise UserError(
            translated("the script {script} {what} (looked for in {cwd})").format(
                script=program, what=what, cwd=situation.cwd
            )
        )


def _check_module(name: str, situation: CommandContext) -> None:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    with situation.world() as world:
        found = subprocess.run(
            world.command([situation.python, "-c", code, name.partition(".")[0]]),
            env=world.environment(with_packages(situation.environment, situation.packages)),
            cwd=situation.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    if found.returncode == 1:
        project = find_project_file(name, Path(situation.cwd))
        if project is not None:
            raise UserError(project_not_installed_text(name, project))
        raise UserError(
            translated(
                "{python} can't find module {name} from {cwd}: run gonogo in the folder where you start the command"
            ).format(python=situation.python, name=name, cwd=situation.cwd)
        )


def _find_interpreter(program: str, situation: CommandContext) -> _Interpreter:
    """The Python to run: the one in the command's path if gonogo is installed there, otherwise our own."""
    if os.sep not in program:
        return _Interpreter(situation.python)
    folder = os.path.dirname(os.path.abspath(os.path.join(situation.cwd, program)))
    if os.path.realpath(folder) == os.path.realpath(os.path.dirname(situation.python)):
        return _Interpreter(situation.python)
    is_interpreter = is_python(os.path.basename(program))
    python = os.path.join(folder, os.path.basename(program) if is_interpreter else "python")
    if os.path.isfile(python):
        probe = [python, "-c", "import gonogo.virtual.protocol.plan"]
        with situation.world() as world:
            works = subprocess.run(
                world.command(probe),
                env=world.environment(situation.environment),
                capture_output=True,
                stdin=subprocess.DEVNULL,
                cwd="/",
                check=False,
            )
        if works.returncode == 0:
            return _Interpreter(python)
    note = translated(
        "the command uses {program}, which does not have gonogo installed: rehearsed with {python} and its "
        "packages instead"
    ).format(program=program, python=situation.python)
    return _Interpreter(situation.python, notes=(note,))


def _resolve_script(words: list[str], situation: CommandContext) -> ResolvedCommand:
    run = run_script(
        words,
        situation.surroundings,
        confinement=situation.confinement,
        environment={**_job_variables(words, situation), **situation.environment},
        cwd=situation.cwd,
        python=sys.executable,
        packages=situation.packages,
        prepared=situation.made,
        timeout=situation.timeout,
    )
    launches = [call for call in run.calls if call.kind == "launch"]
    # A script's launches are stages, and later ones need the output of earlier ones, so the first training is chosen.
    # A server (swift rollout) or a data generator (swift infer) is no training. Among plain programs the training
    # comes last, after its preparation.
    trainings = [call for call in launches if _is_training_launch(call.words)]
    chosen = (trainings or launches or run.calls[-1:])[0]
    inner = replace(situation, environment=chosen.environment, cwd=chosen.cwd, in_script=run)
    try:
        resolved = resolve(chosen.words, inner)
    except UserError as error:
        text = _reason_with_skipped_commands(error.text, run) if run.skipped else error.text
        unset = unset_variables(words, situation.cwd, situation.environment)
        if unset:
            text = _VARIABLES_NOT_SET.format(why=text, names=", ".join(unset[:6]))
        raise error.reworded(text) from None
    return ResolvedCommand(
        resolved.launch, tuple(skipped_commands(run, chosen, words, situation.environment)), (run.tree,)
    )


def _job_variables(words: Sequence[str], situation: CommandContext) -> dict[str, str]:
    """What Slurm sets for the script, if it has ``#SBATCH`` lines."""
    script = next((word for word in words[words[0] in SHELLS :] if not word.startswith(("-", "+"))), None)
    return job_variables(Path(situation.cwd, script), situation.environment) if script else {}


def _check_encoding(words: Sequence[str], environment: Mapping[str, str], cwd: str) -> None:
    """Raise UserError for text that isn't UTF-8: a rehearsal passes commands on as JSON."""
    for text, where in (
        *((word, translated("its command")) for word in words),
        (cwd, translated("its folder's name")),
        *((f"{name}={value}", Text(f"the variable {name}", f"变量 {name}")) for name, value in environment.items()),
    ):
        if not _is_utf_8(text):
            shown = os.fsencode(text)[:80].decode("utf-8", "backslashreplace")
            raise UserError(_NO_UTF_8.format(where=where, text=shown))


def _is_utf_8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_NO_UTF_8 = translated(
    "the launch can't be rehearsed, since {where} has bytes that are not UTF-8: {text}. Rename the files (convmv), and "
    "save the script as UTF-8"
)


def _is_training_launch(words: Sequence[str]) -> bool:
    """Whether a launch is a training, according to the subcommand of its launcher."""
    called = find_called_launcher(words)
    if called is None:
        return True
    launcher, at = called
    return not launcher.subcommands or bool(launcher.subcommands.intersection(words[at : at + 1]))


_VARIABLES_NOT_SET = translated("{why}; the script uses variables that are not set: {names} (export them first)")


def _reason_with_skipped_commands(reason: Text, run: ScriptRun) -> Text:
    """Why a script's launch is rejected, plus the commands that were not run: their output may be the reason."""
    names = list(dict.fromkeys(shorten_command(skipped, 60) for skipped in run.skipped))
    return translated("{why}; these commands of the script were not run and had no output: {listed}").format(
        why=reason, listed="; ".join(names[:4]) + (f"; … ({len(names)})" if len(names) > 4 else "")
    )


def skipped_commands(
    run: ScriptRun, rehearsed_command: ScriptCommand, words: Sequence[str], outer: Mapping[str, str]
) -> Iterator[tuple[Text, Text]]:
    """(what, why) for each part of a script that isn't rehearsed; ``outer`` is the environment of the script."""
    for call in run.calls:
        if call is rehearsed_command or (call.words == rehearsed_command.words and call.cwd == rehearsed_command.cwd):
            continue
        if call.kind == "launch" or rehearsed_command.kind != "launch":
            why = translated("{script} also starts it; rehearse it separately: gonogo rehearse -- {command}").format(
                script=shorten_command(words, 80), command=shorten_command(call.words, 400)
            )
        else:
            why = translated("{script} runs it alongside the training; its output is missing").format(
                script=shorten_command(words, 80)
            )
        what = shorten_command(call.words, 120)
        yield Text(what, what), why
    if run.skipped:
        names = list(dict.fromkeys(shorten_command(skipped, 60) for skipped in run.skipped))
        listed = "; ".join(names[:8]) + (f"; … ({len(names)})" if len(names) > 8 else "")
        yield (
            translated("commands of {script}: {listed}").format(script=shorten_command(words, 80), listed=listed),
            translated(
                "not run, and assumed to succeed without output: they need a network or another machine, never "
                "end, or are not installed here"
            ),
        )
    environment = rehearsed_command.environment
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environment.get(name) not in (None, outer.get(name), sys.prefix):
            yield (
                translated("the Python environment {path}, which {script} activates").format(
                    path=environment[name], script=shorten_command(words, 80)
                ),
                translated(
                    "rehearsed with {python} and its packages instead; start gonogo from that environment"
                ).format(python=sys.executable),
            )


def unset_variables(words: Sequence[str], cwd: str, environment: Mapping[str, str]) -> list[str]:
    """Variables of a script that have no value, in order of use; empty if the script can't be read."""
    script = next((word for word in words if not word.startswith("-") and os.path.basename(word) not in SHELLS), "")
    try:
        with open(os.path.join(cwd, script), encoding="utf-8", errors="replace") as file:
            text = file.read(_MAX_BYTES)
    except OSError:
        return []
    text = re.sub(r"(?m)(?:^|\s)#.*$", "", text)
    known = {*environment, *_assigned_names(text)}
    used = [match[1] or match[2] for match in _VARIABLE_REFERENCE_PATTERN.finditer(re.sub(r"'[^'\n]*'", "", text))]
    return [name for name in dict.fromkeys(used) if name not in known and not _BASH_VARIABLES_PATTERN.fullmatch(name)]


def _assigned_names(text: str) -> Iterator[str]:
    for match in _SET_VARIABLE_PATTERN.finditer(text):
        yield next(name for name in match.groups() if name)
    for match in _READ_BUILTIN_PATTERN.finditer(text):
        yield from re.findall(r"[A-Za-z_]\w*", match[1])
