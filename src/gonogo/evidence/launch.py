"""What is launched: the launcher, its program, their options and variables, the number of processes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gonogo.errors import UserError
from gonogo.evidence.accelerate_config import AccelerateConfig, accelerate_config_of
from gonogo.evidence.command_line import Options, Word, quoted
from gonogo.evidence.field import Field
from gonogo.evidence.launchers.recognise import Called, ProgramKind, called, script_call
from gonogo.evidence.launchers.slurm import as_mapping, directives, with_gpus_per_node
from gonogo.evidence.launchers.slurm import variables as slurm_variables
from gonogo.evidence.launchers.world import World, world_of
from gonogo.evidence.shell.run import Shell, ShellCommand, read_shell
from gonogo.evidence.shell.state import Variable
from gonogo.evidence.shell.text import Piece, ShellWord, text_of
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.evidence.yaml_file import YamlFile, read_yaml
from gonogo.finding import Edit, Text

_UNKNOWN_CWD = Text(
    "the folder that {path} is started from is taken to be {folder}, where its files are found",
    "{path} 的启动目录按 {folder} 处理，因为其中能找到它用到的文件",
)
_DEEPEST = 4
_NOT_SET = Text("its value can't be told", "无法确定它的值")
_FRAMEWORK_MODULES = {
    "swift.cli.sft": "swift",
    "swift.cli.pt": "swift",
    "swift.cli.rlhf": "swift",
    "axolotl.cli.train": "axolotl",
    "llamafactory.launcher": "llamafactory",
    "llamafactory.cli": "llamafactory",
}


class WrittenFile(msgspec.Struct, frozen=True):
    """A file that the script itself writes, by heredoc. ``text`` is None where it can't be told."""

    path: str
    text: str | None
    place: Place
    literal: bool
    """The text stands in the script byte for byte."""

    @property
    def source(self) -> SourceFile | None:
        """The file to read it from; None where its text can't be told.

        Where the text stands in the script as it is, this is the script with all else blanked out: places in it, and
        edits of them, are places in the script.
        """
        if self.text is None:
            return None
        if not self.literal:
            return SourceFile.of_text(self.path, self.text)
        script, start, end = self.place.source, self.place.start, self.place.end
        blank = b"\n".join(b" " * len(line) for line in script.data[:start].split(b"\n"))
        return SourceFile(script.path, blank + script.data[start:end], writable=script.writable)


class Launch(msgspec.Struct, frozen=True):
    """One command that starts a training."""

    launcher: str
    source: SourceFile
    place: Place
    variables: Mapping[str, Field]
    """The environment that the command gets, as far as the files set it."""
    launcher_options: Options
    options: Options
    nodes: Field
    processes_per_node: Field
    world_size: Field
    program: Field
    program_kind: ProgramKind
    slurm: Mapping[str, Field]
    visible_devices: Field
    deepspeed_config: Field
    accelerate_config: Field
    framework_config: Field
    hostfile: Field
    cwd: Path
    cwd_known: bool = False
    notes: tuple[Text, ...] = ()
    framework: str | None = None
    """The training framework whose command or module the program is."""
    words: tuple[Word, ...] = ()
    statement: Place | None = None
    shell_variables: Mapping[str, Field] = {}
    """All variables of the shell at that point."""
    prefixed: frozenset[str] = frozenset()
    written_files: Mapping[str, WrittenFile] = {}
    """By their whole path."""
    in_container: bool = False
    heredoc: WrittenFile | None = None
    """The program's code, for ``python - <<EOF``."""

    @property
    def line(self) -> int:
        """The line that the command begins on."""
        return self.place.line

    def variable(self, name: str) -> Field:
        """A variable of the command's environment; absent where nothing in the files sets it."""
        return self.variables.get(name, Field.missing())

    def path_of(self, field: Field) -> Path | None:
        """The file that a field names, from the folder that the command runs in; None where it is not known."""
        value = field.string
        return self.cwd / os.path.expanduser(value) if value else None

    def setting_variable(self, name: str, value: str) -> Edit:
        """An edit that gives the command this variable.

        It changes the value where the files set it, else adds ``export NAME=VALUE`` on a line before the command, or
        ``NAME=VALUE`` before a command that does not begin its line. It changes nothing where the command stands in
        no file.
        """
        field = self.variables.get(name)
        place = field.place if field is not None else None
        if place is not None and place.source.writable and place.text.startswith(f"{name}="):
            return place.edit(f"{name}={quoted(value)}")
        if not self.source.writable:
            return Place(self.source, self.place.start, self.place.start).edit("")
        statement = self.statement or self.place
        source = statement.source
        first = source.line_start(source.line_of(statement.start))
        indent = source.data[first : statement.start]
        follows = source.data[:first].rstrip(b"\r\n").endswith(b"\\")
        if indent.strip(b" \t") or follows or statement.start != self.place.start:
            start = self.place.start
            return Place(source, start, start).edit(f"{name}={quoted(value)} ")
        ending = "\r\n" if source.line_bytes(source.line_of(first)).endswith(b"\r\n") else "\n"
        blanks = indent.decode("utf-8", "surrogateescape")
        return Place(source, first, first).edit(f"{blanks}export {name}={quoted(value)}{ending}")


def read_launches(source: SourceFile) -> tuple[Launch, ...]:
    """The launches of a shell script or a job script, in order; none where it launches nothing."""
    folder = Path(os.path.abspath(source.path)).parent if source.writable else Path.cwd()
    if _is_dockerfile(source):
        from gonogo.evidence.dockerfile_command import dockerfile_commands

        return _launches(dockerfile_commands(source, folder), source, {}, 0)
    slurm = directives(source)
    commands = read_shell(source, folder, given=slurm_variables(slurm))
    return _launches(commands, source, slurm, 0)


def launch_of_command(words: Sequence[str], cwd: Path | str) -> Launch | None:
    """The launch that a command line is, or the last that the script launches which it runs; None where it is none.

    A launch of several processes goes before the plain Python programs that prepare it.
    """
    found = launches_of_command(words, cwd)
    distributed = [launch for launch in found if launch.launcher != "python"]
    candidates = distributed or list(found)
    return candidates[-1] if candidates else None


def launches_of_command(words: Sequence[str], cwd: Path | str) -> tuple[Launch, ...]:
    """The launch that a command line is, or all that the script launches which it runs."""
    word_list, source = _typed(words)
    folder = Path(os.path.abspath(cwd))
    place = Place(source, 0, len(source.data))
    command = ShellCommand(tuple(word_list), place, place, {}, frozenset(), {}, folder, True, {})
    return _launches([command], source, {}, 0)


def _typed(words: Sequence[str]) -> tuple[list[ShellWord], SourceFile]:
    """A typed command as a source, with a place for each word."""
    shown = [quoted(word) for word in words]
    text = " ".join(shown)
    source = SourceFile.of_text("<command>", text)
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


def _launches(
    commands: Sequence[ShellCommand], source: SourceFile, slurm: Mapping[str, Field], depth: int
) -> tuple[Launch, ...]:
    found: list[Launch] = []
    seen: set[tuple[object, ...]] = set()
    for command in commands:
        call = called(command.words)
        if call is None:
            call = _by_first_line(command)
        if call is None:
            continue
        if call.launcher == "shell":
            found += _followed(call, command, source, slurm, depth)
            continue
        key = (command.place.start, id(command.place.source), tuple(word.value for word in command.words))
        if key not in seen:
            seen.add(key)
            found.append(_launch(call, command, slurm))
    return tuple(found)


def _followed(
    call: Called, command: ShellCommand, source: SourceFile, slurm: Mapping[str, Field], depth: int
) -> tuple[Launch, ...]:
    """The launches of a script that the command runs."""
    if depth >= _DEEPEST:
        return ()
    environment = _environment(call, command)
    asked = {**slurm, **as_mapping(call.slurm)} if call.slurm is not None else dict(slurm)
    if call.code is not None:
        given = slurm_variables(with_gpus_per_node(dict(asked)))
        inside = _inside(call.code, command, environment, given)
        return _launches(inside, source, with_gpus_per_node(asked), depth + 1)
    if call.from_input:
        inside = _on_input(command, environment, slurm_variables(with_gpus_per_node(dict(asked))))
        return _launches(inside, source, with_gpus_per_node(asked), depth + 1)
    path = call.script.value if call.script is not None else None
    if path is None:
        return ()
    try:
        script = SourceFile.read(_shown_path(command.cwd, path))
    except UserError:
        return ()
    own = {**directives(script), **asked}
    commands = read_shell(
        script,
        command.cwd,
        cwd_known=command.cwd_known,
        arguments=call.script_arguments,
        environment=environment,
        given=slurm_variables(own),
    )
    return _launches(commands, script, own, depth + 1)


def _shown_path(cwd: Path, path: str) -> str:
    """A script's path as users know it: relative where it lies below the folder that gonogo runs in."""
    whole = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))
    try:
        relative = os.path.relpath(whole)
    except ValueError:
        return whole
    return whole if relative.startswith("..") else relative


def _inside(
    code: ShellWord, command: ShellCommand, environment: dict[str, Variable], given: dict[str, str]
) -> list[ShellCommand]:
    """The commands of ``bash -c CODE``."""
    from gonogo.evidence.shell.nested import run_text
    from gonogo.evidence.shell.state import State

    place = code.place
    if place.source.path == "<command>" and code.value is not None:
        source = SourceFile.of_text("<command>", code.value)
        return read_shell(source, command.cwd, cwd_known=command.cwd_known, environment=environment, given=given)
    shell = Shell(place.source, given)
    state = State(command.cwd)
    state.cwd_known = command.cwd_known
    # What stands in double quotes is expanded by the outer shell, whose variables are all known there.
    state.variables = {**command.shell, **environment}
    state.written = dict(command.written)
    try:
        run_text(shell, [code], state, command.place)
    except RecursionError:
        return []
    return shell.commands


def _on_input(command: ShellCommand, environment: dict[str, Variable], given: dict[str, str]) -> list[ShellCommand]:
    """The commands of ``bash <<EOF``."""
    if command.standard_input is None or command.input_place is None:
        return []
    source = _written("<stdin>", command.standard_input, command.input_place).source
    if source is None:
        return []
    return read_shell(source, command.cwd, cwd_known=command.cwd_known, environment=environment, given=given)


def _by_first_line(command: ShellCommand) -> Called | None:
    """``./launch``: a shell script by its first line."""
    path = command.words[0].value if command.words else None
    if not path or os.sep not in path:
        return None
    whole = os.path.join(command.cwd, path)
    try:
        with open(whole, "rb") as file:
            first = file.readline(100)
    except (OSError, ValueError):
        return None
    if not first.startswith(b"#!") or b"sh" not in first:
        return None
    return script_call(command.words)


def _environment(call: Called, command: ShellCommand) -> dict[str, Variable]:
    environment = {} if call.cleared else dict(command.environment)
    for name in call.removed:
        environment.pop(name, None)
    for name, (value, word) in call.environment.items():
        place = word.place
        piece = Piece(value, place.source, place.start, place.end, reason=word.reason)
        environment[name] = Variable((piece,), place)
    return {name: msgspec.structs.replace(variable, exported=True) for name, variable in environment.items()}


def _field(variable: Variable) -> Field:
    if variable.unset:
        return Field.missing()
    value = variable.value
    if value is None:
        return Field.not_known(variable.place, variable.reason or _NOT_SET)
    return Field.of(value, variable.place, variable.reason)


def _launch(call: Called, command: ShellCommand, directive: Mapping[str, Field]) -> Launch:
    environment = {name: _field(variable) for name, variable in _environment(call, command).items()}
    slurm = with_gpus_per_node({**directive, **(as_mapping(call.slurm) if call.slurm is not None else {})})
    cwd, notes = _cwd(call, command)
    framework = _framework(call)
    framework_field, framework_file = _framework_config(call, framework, cwd, command)
    if framework is None and framework_file is not None and _is_of_llamafactory(framework_file):
        framework = "llamafactory"
    accelerate_field, accelerate, accelerate_notes = _accelerate(call, cwd, environment, command)
    world: World = world_of(call, environment, slurm, cwd, accelerate)
    deepspeed = _deepspeed_config(call, framework, framework_file, accelerate)
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
        notes=(*notes, *accelerate_notes),
        framework=framework,
        words=command.words,
        statement=command.statement,
        shell_variables={name: _field(variable) for name, variable in command.shell.items()},
        prefixed=command.prefixed,
        written_files={path: _written(path, *written) for path, written in command.written.items()},
        in_container=call.in_container,
        heredoc=_heredoc(call, command),
    )


def _written(path: str, pieces: tuple[Piece, ...], place: Place) -> WrittenFile:
    return WrittenFile(path, text_of(pieces), place, all(piece.literal for piece in pieces))


def _heredoc(call: Called, command: ShellCommand) -> WrittenFile | None:
    if not call.from_input or command.standard_input is None or command.input_place is None:
        return None
    return _written("<stdin>", command.standard_input, command.input_place)


def _cwd(call: Called, command: ShellCommand) -> tuple[Path, tuple[Text, ...]]:
    """The folder that the command runs in.

    Where the script does not say, it is the script's own, or the first folder above it in which the program is found.
    """
    cwd = command.cwd
    if call.chdir is not None:
        return Path(os.path.normpath(os.path.join(cwd, call.chdir))), ()
    if command.cwd_known:
        return cwd, ()
    wanted = call.program.string if call.program_kind == "script" else None
    if wanted is None:
        wanted = next(
            (word.value for word in call.options.positional if word.value and word.value.endswith((".yaml", ".yml"))),
            None,
        )
    if not wanted or os.path.isabs(wanted) or os.path.exists(os.path.join(cwd, wanted)):
        return cwd, ()
    above = [cwd, *cwd.parents][:5]
    root = next((index for index, folder in enumerate(above) if _is_project(folder)), None)
    if root is None and os.sep not in os.path.normpath(wanted):
        return cwd, ()  # outside a project, a file of that name is found anywhere
    for folder in above[1 : root + 1 if root is not None else None]:
        if (folder / wanted).exists():
            return folder, (_UNKNOWN_CWD.format(path=command.place.source.path, folder=str(folder)),)
    return cwd, ()


def _is_project(folder: Path) -> bool:
    return any((folder / name).exists() for name in (".git", "pyproject.toml", "setup.py"))


def _framework(call: Called) -> str | None:
    names = {"swift": "ms-swift", "llamafactory": "llamafactory", "axolotl": "axolotl", "trl": "trl"}
    if call.launcher in names:
        return names[call.launcher]
    if call.program_kind == "module":
        found = _FRAMEWORK_MODULES.get(call.program.string or "")
        return names[found] if found else None
    path = (call.program.string or "").replace(os.sep, "/")
    if path.endswith(("swift/cli/sft.py", "swift/cli/pt.py", "swift/cli/rlhf.py")):
        return "ms-swift"
    if path.endswith(("llamafactory/launcher.py", "src/train_bash.py")):
        return "llamafactory"
    return None


def _framework_config(
    call: Called, framework: str | None, cwd: Path, command: ShellCommand
) -> tuple[Field, YamlFile | None]:
    """The YAML that the program is given: its first argument, or ``--config``."""
    word = next((word for word in call.options.positional), None)
    named = Field.missing()
    if word is not None and (word.value is None or word.value.endswith((".yaml", ".yml", ".json"))):
        given = (
            Field.of(word.value, word.place, word.reason) if word.value else Field.not_known(word.place, word.reason)
        )
        if framework is not None or given.known:
            named = given
    if named.absent and call.options.get("config").string:
        config = call.options.get("config")
        if framework in ("trl", "ms-swift") or str(config.value).endswith((".yaml", ".yml")):
            named = config
    path = named.string
    return named, read_yaml_at(cwd, path, command.written) if path else None


def _is_of_llamafactory(config: YamlFile) -> bool:
    """Whether a YAML has the arguments that only LLaMA-Factory takes: it starts ``src/train.py`` with it."""
    return all(not config.get(name).absent for name in ("stage", "finetuning_type", "model_name_or_path"))


def read_yaml_at(
    cwd: Path, path: str, written: Mapping[str, tuple[tuple[Piece, ...], Place]] | None = None
) -> YamlFile | None:
    """A YAML file by its path from a folder; None where it can't be read."""
    whole = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))
    if written and whole in written:
        source = _written(path, *written[whole]).source
        return read_yaml(source) if source is not None else None
    try:
        return read_yaml(SourceFile.read(_shown_path(cwd, path)))
    except UserError:
        return None


def read_yaml_of(launch: Launch, path: str) -> YamlFile | None:
    """A YAML or JSON file that a launch names, also one that its script writes; None where it can't be read."""
    whole = os.path.normpath(os.path.join(launch.cwd, os.path.expanduser(path)))
    written = launch.written_files.get(whole)
    if written is not None:
        return read_yaml(written.source) if written.source is not None else None
    return read_yaml_at(launch.cwd, path)


def _accelerate(
    call: Called, cwd: Path, environment: Mapping[str, Field], command: ShellCommand
) -> tuple[Field, AccelerateConfig | None, tuple[Text, ...]]:
    if call.launcher not in ("accelerate", "trl", "axolotl"):
        return Field.missing(), None, ()
    name = "config_file" if call.launcher == "accelerate" else "accelerate_config"
    field = call.launcher_options.get(name)
    written = {path: _written(path, *found).source for path, found in command.written.items()}
    return accelerate_config_of(field, cwd, written, launcher=call.launcher)


def _deepspeed_config(
    call: Called, framework: str | None, framework_file: YamlFile | None, accelerate: AccelerateConfig | None
) -> Field:
    """The DeepSpeed config that the files name: a path, or a framework's name for one of its own."""
    for name in ("deepspeed_config", "deepspeed", "deepspeed_config_file", "ds_config", "ds_config_path"):
        field = call.options.get(name)
        if isinstance(field.value, tuple):
            field = msgspec.structs.replace(field, value=field.value[0])
        if isinstance(field.value, str) and field.value.lower() not in ("true", "false", "none", ""):
            return field
        if field.unknown and name in call.options:
            return field
    for word in call.options.positional:
        key, equals, value = (word.value or "").partition("=")
        if equals and key.lstrip("+") == "deepspeed" and value:
            return Field.of(value, word.place, word.reason)
    if framework_file is not None:
        field = framework_file.get("deepspeed")
        if field.known and field.value:
            return field
        if field.unknown:
            return field
    own = call.launcher_options.get("deepspeed_config_file") if call.launcher == "accelerate" else Field.missing()
    if not own.absent and "deepspeed_config_file" in call.launcher_options:
        return own
    if accelerate is not None:
        field = accelerate.get("deepspeed_config", "deepspeed_config_file")
        if field.known and field.value in ("none", "None", None):
            return Field.missing()
        return field
    if not call.options.complete:
        return call.options.get("deepspeed")
    return Field.missing()
