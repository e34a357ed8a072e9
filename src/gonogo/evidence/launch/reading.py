"""Finds launches: reads the commands of a script, and of the scripts that it runs, and builds a Launch from each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.environment.own_package import project_console_script
from gonogo.evidence.field import Field
from gonogo.evidence.launch.command_line import quote_for_shell
from gonogo.evidence.launch.configs import (
    accelerate_config_of_call,
    framework_config_of_call,
    framework_of_call,
    is_llamafactory_config,
    named_deepspeed_config,
    to_written_file,
)
from gonogo.evidence.launch.launch import Launch, WrittenFile
from gonogo.evidence.launch.launchers import LAUNCHERS
from gonogo.evidence.launch.launchers.counts import ALONE, UNSETTLED, LaunchSettings, LaunchSize, to_positive_count
from gonogo.evidence.launch.launchers.recognise import (
    LauncherCall,
    console_script_call,
    parse_launcher_call,
    script_call,
)
from gonogo.evidence.launch.launchers.slurm import (
    sbatch_directives,
    slurm_options,
    srun_launch_size,
    with_gpus_per_node,
)
from gonogo.evidence.launch.launchers.slurm import slurm_variables as slurm_variables
from gonogo.evidence.paths import exists, open_for_reading
from gonogo.evidence.shell.script_commands import ShellCommand, read_shell, read_word
from gonogo.evidence.shell.state import Variable
from gonogo.evidence.shell.text import Piece, ShellWord
from gonogo.evidence.source_file import Place, SourceFile, display_path
from gonogo.finding import Text, UserError, translated

_DISTRIBUTED_BY_MPI = translated("MPI distributes the processes over its hosts")

_UNKNOWN_CWD = translated("assuming that {path} is started from {folder}, where its files are found")
_MAX_DEPTH = 4
_MAX_LAUNCHES = 200
_UNKNOWN_TEXT_MARK = "\0"
_SCRIPT_NOT_READ = translated("the script runs {path}, which was not read: {why}")
_TOO_MANY_LAUNCHES = translated("the file was read only up to line {line}: it has more than {limit} launches")
_VALUE_UNKNOWN = translated("the variable's value can't be determined")


@lru_cache(maxsize=1)  # a hazard that compares the launches of one script asks for them at each of these
def read_launches(source: SourceFile) -> tuple[Launch, ...]:
    """The launches in a shell script, a job script, a Dockerfile or a manifest, in order; empty if there are none."""
    folder = Path(os.path.abspath(source.path)).parent if source.writable else Path.cwd()
    if _is_dockerfile(source):
        from gonogo.evidence.launch.dockerfile import dockerfile_commands

        return _launches_of_commands(dockerfile_commands(source, folder), source, {}, 0, set())
    if source.path.lower().endswith((".yaml", ".yml")):
        from gonogo.evidence.launch.manifest import manifest_commands

        return _launches_of_commands(manifest_commands(source, folder), source, {}, 0, set())
    slurm = sbatch_directives(source)
    commands = read_shell(source, folder, initial_variables=slurm_variables(slurm))
    return _launches_of_commands(commands, source, slurm, 0, set())


def launches_of_command(
    words: Sequence[str], cwd: Path | str, environment: Mapping[str, str] | None = None
) -> tuple[Launch, ...]:
    """The launch that a command line is, or all launches of the script that it runs.

    ``environment`` holds variables set in the shell in which the command is typed.
    """
    folder = Path(os.path.abspath(cwd))
    word_list, source = typed_words(words)
    place = Place(source, 0, len(source.data))
    given = {
        name: Variable((Piece(value, source, 0, 0),), exported=True) for name, value in (environment or {}).items()
    }
    command = ShellCommand(tuple(word_list), place, place, given, frozenset(), given, folder, True, {})
    return _launches_of_commands([command], source, {}, 0, set())


def typed_words(words: Sequence[str]) -> tuple[list[ShellWord], SourceFile]:
    """A command typed on the command line, as words with places in a source of their own."""
    shown = [quote_for_shell(word) for word in words]
    text = " ".join(shown)
    source = SourceFile.from_text("<command>", text)
    found = []
    position = 0
    for word, written in zip(words, shown, strict=True):
        end = position + len(written.encode("utf-8", "surrogateescape"))
        piece = Piece(word, source, position, end, literal=word == written)
        found.append(ShellWord((piece,), piece.place, quoted=True))
        position = end + 1
    return found, source


def _is_dockerfile(source: SourceFile) -> bool:
    name = os.path.basename(source.path)
    return name == "Dockerfile" or name.endswith(".Dockerfile") or name.startswith("Dockerfile.")


def _launches_of_commands(
    commands: Sequence[ShellCommand], source: SourceFile, slurm: Mapping[str, Field], depth: int, barren: set[Any]
) -> tuple[Launch, ...]:
    """The launches among commands. ``barren`` caches the calls of scripts that launch nothing, which may repeat."""
    found: list[Launch] = []
    seen: set[tuple[object, ...]] = set()
    for command in commands:
        call = parse_launcher_call(command.words)
        if call is None:
            call = _shebang_script_call(command) or _project_command_call(command)
        if call is None:
            continue
        if call.launcher == "shell":
            inside = _follow_script(call, command, source, slurm, depth, barren)
            found += _mark_in_container(call, command, _mark_never_started(command, inside))
            continue
        key = (command.place.start, id(command.place.source), tuple(word.value for word in command.words))
        if key not in seen:
            if len(found) >= _MAX_LAUNCHES:
                source.gap = source.gap or _TOO_MANY_LAUNCHES.format(line=command.place.line, limit=_MAX_LAUNCHES)
                break
            seen.add(key)
            found.append(_build_launch(call, command, slurm))
    return tuple(found)


def _mark_never_started(command: ShellCommand, launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
    """The launches of a script, with what is missing on disk for the command that runs the script."""
    if not command.absent:
        return launches
    return tuple(
        msgspec.structs.replace(one, never=command.never or one.never, absent=(*command.absent, *one.absent))
        for one in launches
    )


def _mark_in_container(call: LauncherCall, command: ShellCommand, launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
    """The launches of a script, marked as inside a container if the script itself is run in one."""
    image = _container_image(call, slurm_options(call.slurm) if call.slurm is not None else {})
    if not call.in_container and image.absent:
        return launches
    inside = call.code.place if call.code is not None else command.input_place if call.from_input else None
    return tuple(
        msgspec.structs.replace(
            one,
            in_container=True,
            image=image if one.image.absent else one.image,
            container_script=one.container_script or inside or Place(one.source, 0, len(one.source.data)),
        )
        for one in launches
    )


def _container_image(call: LauncherCall, slurm: Mapping[str, Field]) -> Field:
    if call.image is None:
        return slurm.get("container-image", Field.missing())
    if call.image.value is None:
        return Field.not_known(call.image.place, call.image.reason)
    return Field.of(call.image.value, call.image.place)


def _follow_script(
    call: LauncherCall,
    command: ShellCommand,
    source: SourceFile,
    slurm: Mapping[str, Field],
    depth: int,
    barren: set[Any],
) -> tuple[Launch, ...]:
    """The launches of a script that the command runs."""
    if depth >= _MAX_DEPTH:
        return ()
    environment = _launch_environment(call, command)
    requested = {**slurm, **slurm_options(call.slurm)} if call.slurm is not None else dict(slurm)
    if call.code is not None:
        given = slurm_variables(with_gpus_per_node(dict(requested)))
        inside = _commands_of_bash_c(call.code, command, environment, given)
        return _launches_of_commands(inside, source, with_gpus_per_node(requested), depth + 1, barren)
    if call.from_input:
        inside = _stdin_commands(command, environment, slurm_variables(with_gpus_per_node(dict(requested))))
        return _launches_of_commands(inside, source, with_gpus_per_node(requested), depth + 1, barren)
    path = call.script.value if call.script is not None else None
    if path is None:
        return ()
    try:
        script = SourceFile.read(display_path(command.cwd / os.path.expanduser(path)))
    except UserError:
        return ()
    own = {**sbatch_directives(script), **requested}
    given = slurm_variables(own)
    key = (script.path, command.cwd, command.cwd_known, depth, *_caller_key(call.script_arguments, environment, given))
    if key in barren:
        return ()
    commands = read_shell(
        script,
        command.cwd,
        cwd_known=command.cwd_known,
        arguments=call.script_arguments,
        environment=environment,
        initial_variables=given,
        posix=_is_run_by_sh(command, script),
        made_before=command.made_before,
    )
    if script.gap is not None and source.gap is None:
        source.gap = _SCRIPT_NOT_READ.format(path=script.path, why=script.gap)
    found = _launches_of_commands(commands, script, own, depth + 1, barren)
    if not found:
        barren.add(key)
    return found


def _is_run_by_sh(command: ShellCommand, script: SourceFile) -> bool:
    """Whether ``sh`` runs a script rather than bash: by the command, or by the script's first line."""
    names = [os.path.basename(word.value or "") for word in command.words]
    if any(name in ("bash", "zsh") for name in names):
        return False
    first = script.data.partition(b"\n")[0]
    return any(name in ("sh", "dash", "ash") for name in names) or first.rstrip().endswith((b"/sh", b"env sh"))


def _caller_key(
    arguments: Sequence[ShellWord] | None, environment: Mapping[str, Variable], initial_variables: Mapping[str, str]
) -> tuple[object, ...]:
    """A cache key of all that a script gets from its caller, without source positions."""

    def comparable_words(words: Sequence[ShellWord] | None) -> tuple[object, ...] | None:
        """Words as a cache key: their texts without source positions."""
        return None if words is None else tuple((word.value, word.may_split, word.quoted) for word in words)

    variables = {
        (name, one.value, one.exported, one.unset, comparable_words(one.array)) for name, one in environment.items()
    }
    return comparable_words(arguments), frozenset(variables), frozenset(initial_variables.items())


def _commands_of_bash_c(
    code: ShellWord, command: ShellCommand, environment: dict[str, Variable], initial_variables: dict[str, str]
) -> list[ShellCommand]:
    """The commands of ``bash -c CODE``."""
    place = code.place
    if place.source.path == "<command>" and code.value is not None:
        source = SourceFile.from_text("<command>", code.value)
        return read_shell(
            source,
            command.cwd,
            cwd_known=command.cwd_known,
            environment=environment,
            initial_variables=initial_variables,
        )
    return read_word(code, command, environment, initial_variables)


def _stdin_commands(
    command: ShellCommand, environment: dict[str, Variable], initial_variables: dict[str, str]
) -> list[ShellCommand]:
    """The commands of ``bash <<EOF``."""
    if command.standard_input is None or command.input_place is None:
        return []
    source = to_written_file("<stdin>", command.standard_input, command.input_place).source
    if source is None:
        return []
    return read_shell(
        source, command.cwd, cwd_known=command.cwd_known, environment=environment, initial_variables=initial_variables
    )


def _shebang_script_call(command: ShellCommand) -> LauncherCall | None:
    """``./launch``: a shell script, recognised by its shebang line."""
    path = command.words[0].value if command.words else None
    if not path or os.sep not in path:
        return None
    whole = os.path.join(command.cwd, path)
    try:
        with open_for_reading(whole) as file:
            first = file.readline(100)
    except OSError:
        return None
    if not first.startswith(b"#!") or b"sh" not in first:
        return None
    return script_call(command.words)


def _project_command_call(command: ShellCommand) -> LauncherCall | None:
    """``NAME``: a command that the project's own package installs."""
    name = command.words[0].value if command.words else None
    own = project_console_script(name, command.cwd) if name and not name.startswith(("-", ".")) else None
    return console_script_call(command.words, own.partition(":")[0]) if own is not None else None


def _launch_environment(call: LauncherCall, command: ShellCommand) -> dict[str, Variable]:
    environment = {} if call.cleared else dict(command.environment)
    for name in call.removed:
        environment.pop(name, None)
    for name, (value, word) in call.environment.items():
        place = word.place
        piece = Piece(value, place.source, place.start, place.end, reason=word.reason)
        environment[name] = Variable((piece,), place)
    return {name: msgspec.structs.replace(variable, exported=True) for name, variable in environment.items()}


def _field_of_variable(variable: Variable) -> Field:
    if variable.unset:
        return Field.missing()
    value = variable.value
    if value is None:
        return Field.not_known(variable.place, variable.reason or _VALUE_UNKNOWN)
    return Field.of(value, variable.place, variable.reason)


def _build_launch(call: LauncherCall, command: ShellCommand, directive: Mapping[str, Field]) -> Launch:
    variables = _launch_environment(call, command)
    environment = {name: _field_of_variable(variable) for name, variable in variables.items()}
    slurm = with_gpus_per_node({**directive, **(slurm_options(call.slurm) if call.slurm is not None else {})})
    cwd, notes = _working_directory(call, command)
    path, path_complete, path_unread = _python_path(variables.get("PYTHONPATH"), command.cwd, cwd)
    own = project_console_script(call.console_script, cwd) if call.console_script else None
    if own is not None:
        program = Field.of(own.partition(":")[0], call.program.place)
        call = msgspec.structs.replace(call, program=program, program_kind="module")
    framework = framework_of_call(call)
    framework_field, framework_file = framework_config_of_call(call, framework, cwd, command)
    if framework is None and framework_file is not None and is_llamafactory_config(framework_file):
        framework = "llamafactory"
    accelerate_field, accelerate, accelerate_notes = accelerate_config_of_call(call, cwd, environment, command)
    world = launch_size_of_call(call, environment, slurm, cwd, accelerate.get if accelerate is not None else None)
    deepspeed = named_deepspeed_config(call, framework, framework_file, accelerate)
    image = _container_image(call, slurm)
    launcher = call.launcher
    if launcher == "python" and call.slurm is not None:
        launcher = "srun"
    elif launcher == "python" and call.mpirun is not None:
        launcher = "mpirun"
    return Launch(
        launcher=launcher,
        source=command.place.source,
        place=command.place,
        variables=environment,
        launcher_options=call.launcher_options,
        options=call.options,
        nodes=world.nodes,
        processes_per_node=world.processes_per_node,
        world_size=world.world_size,
        program=call.program,
        program_kind=call.program_kind,
        slurm=slurm,
        visible_devices=environment.get("CUDA_VISIBLE_DEVICES", Field.missing()),
        deepspeed_config=deepspeed,
        accelerate_config=accelerate_field,
        framework_config=framework_field,
        hostfile=world.hostfile,
        cwd=cwd,
        cwd_known=command.cwd_known,
        notes=(*notes, *command.notes, *accelerate_notes),
        framework=framework,
        words=command.words,
        statement=command.statement,
        prefixed=command.prefixed,
        written_files={path: to_written_file(path, *written) for path, written in command.written.items()},
        copied=command.copied,
        in_container=call.in_container or not image.absent,
        image=image,
        heredoc=_heredoc_file(call, command),
        python_path=path,
        python_path_complete=path_complete,
        python_path_unread=path_unread,
        entry_function=own.partition(":")[2].partition(".")[0] if own is not None else "",
        absent=command.absent,
        never=command.never,
        made_before=command.made_before,
    )


def _python_path(variable: Variable | None, launch_folder: Path, cwd: Path) -> tuple[tuple[str, ...], bool, bool]:
    """The entries of ``PYTHONPATH``, whether these are all, and whether any of them can't be resolved.

    ``src:$PYTHONPATH`` is read as it is where the caller has not set the variable: ``src`` and an empty entry, for
    which Python searches the working folder. ``$PWD`` in a script that may be started from anywhere means the launch's
    folder ``cwd``, although the shell parser took ``launch_folder`` for it.
    """
    if variable is None or variable.unset:
        return (), True, False
    texts: list[str] = []
    extended = unread = False

    def add_pieces(pieces: Sequence[Piece], depth: int = 0) -> None:
        nonlocal extended, unread
        for piece in pieces:
            if piece.text is None and piece.inner and depth < 10:
                add_pieces(piece.inner, depth + 1)
            elif piece.text is None and piece.folder:
                texts.append(os.path.normpath(cwd / os.path.relpath(piece.folder, launch_folder)))
            elif piece.text is None and piece.variable == "PYTHONPATH":
                extended = True
            else:
                texts.append(_UNKNOWN_TEXT_MARK if piece.text is None else piece.text)
                unread = unread or piece.text is None

    add_pieces(variable.pieces)
    path = "".join(texts)
    entries = path.split(os.pathsep) if path else ()
    known = tuple(each for each in entries if _UNKNOWN_TEXT_MARK not in each)
    return known, not extended and len(known) == len(entries), unread


def _heredoc_file(call: LauncherCall, command: ShellCommand) -> WrittenFile | None:
    if not call.from_input or command.standard_input is None or command.input_place is None:
        return None
    return to_written_file("<stdin>", command.standard_input, command.input_place)


def _working_directory(call: LauncherCall, command: ShellCommand) -> tuple[Path, tuple[Text, ...]]:
    """The folder in which the command runs, and notes on what was assumed.

    If the script does not say, it is the script's own folder, or the nearest folder above it that has the program.
    """
    cwd = command.cwd
    if call.chdir is not None:
        return Path(os.path.normpath(os.path.join(cwd, call.chdir))), ()
    if command.cwd_known:
        return cwd, ()
    if command.cwd_assumed is not None:  # the script changes into an existing folder that isn't below its own
        return cwd, (_UNKNOWN_CWD.format(path=command.place.source.path, folder=str(command.cwd_assumed)),)
    wanted = _files_of_program(call)
    if not wanted or any(os.path.isabs(name) or os.path.exists(os.path.join(cwd, name)) for name in wanted):
        return cwd, ()
    above = [cwd, *cwd.parents][:5]
    root = next((index for index, folder in enumerate(above) if _is_project_root(folder)), None)
    if root is None and all(os.sep not in os.path.normpath(name) for name in wanted):
        return cwd, ()  # outside a project, a folder further up may have an unrelated file of that name
    for folder in above[1 : root + 1 if root is not None else None]:
        if any(exists(folder / name) for name in wanted):
            return folder, (_UNKNOWN_CWD.format(path=command.place.source.path, folder=str(folder)),)
    return cwd, ()


def _files_of_program(call: LauncherCall) -> tuple[str, ...]:
    """Paths, relative to the working folder, of which one must exist there; empty if any folder will do."""
    name = call.program.string
    if name and call.program_kind == "script":
        return (name,)
    if name and call.program_kind == "module":
        path = name.replace(".", os.sep)
        return f"{path}.py", os.path.join(path, "__main__.py")
    configs = (word.value for word in call.options.positional if word.value)
    return tuple(value for value in configs if value.endswith((".yaml", ".yml")))[:1]


def _is_project_root(folder: Path) -> bool:
    return any(exists(folder / name) for name in (".git", "pyproject.toml", "setup.py"))


def launch_size_of_call(
    call: LauncherCall,
    variables: Mapping[str, Field],
    slurm: Mapping[str, Field],
    cwd: Path,
    accelerate: Callable[..., Field] | None,
) -> LaunchSize:
    """The nodes and processes that a call starts; ``accelerate`` looks keys up in accelerate's config."""
    if call.launcher in LAUNCHERS:
        return LAUNCHERS[call.launcher].world(LaunchSettings(call.launcher_options, variables, cwd, accelerate))
    if call.launcher == "unknown":
        unknown = Field.not_known(call.launcher_options.end, UNSETTLED)
        return LaunchSize(unknown, unknown, unknown)
    if call.mpirun is not None:
        total = to_positive_count(call.mpirun.get("np", "n", "c"))
        unknown = Field.not_known(total.place, _DISTRIBUTED_BY_MPI)
        return LaunchSize(unknown, unknown, total)
    return srun_launch_size(slurm) if call.slurm is not None else _launch_size_without_launcher(variables)


def _launch_size_without_launcher(variables: Mapping[str, Field]) -> LaunchSize:
    size = variables.get("WORLD_SIZE")
    if size is not None and "RANK" in variables:
        total = to_positive_count(size)
        unknown = Field.not_known(size.place, UNSETTLED)
        return LaunchSize(unknown, unknown, total)
    one = Field.of(1, None, ALONE)
    return LaunchSize(one, one, one)
