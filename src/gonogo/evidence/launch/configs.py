"""The config files that a launch names: those of the framework, of accelerate and of DeepSpeed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from gonogo.evidence.config.accelerate import AccelerateConfig, resolve_accelerate_config
from gonogo.evidence.document.yaml_file import YamlFile, read_yaml
from gonogo.evidence.field import Field
from gonogo.evidence.launch.launch import Launch, WrittenFile
from gonogo.evidence.launch.launchers import LAUNCHERS
from gonogo.evidence.launch.launchers.recognise import LauncherCall
from gonogo.evidence.paths import exists
from gonogo.evidence.shell.script_commands import ShellCommand
from gonogo.evidence.shell.text import Piece, joined_text
from gonogo.evidence.source_file import Place, SourceFile, display_path
from gonogo.finding import Text, UserError


def to_written_file(path: str, pieces: tuple[Piece, ...], place: Place) -> WrittenFile:
    """A file that a script writes, from the parts of its heredoc."""
    return WrittenFile(path, joined_text(pieces), place, all(piece.literal for piece in pieces))


def framework_of_call(call: LauncherCall) -> str | None:
    """The training framework that the program's command, module or script belongs to."""
    if call.launcher in LAUNCHERS and LAUNCHERS[call.launcher].framework is not None:
        return LAUNCHERS[call.launcher].framework
    program = (call.program.string or "").replace(os.sep, "/")
    for launcher in LAUNCHERS.values():
        files = tuple(one if "/" in one else f"{one.replace('.', '/')}.py" for one in launcher.programs)
        if program in launcher.programs if call.program_kind == "module" else program.endswith(files):
            return launcher.framework
    return None


def framework_config_of_call(
    call: LauncherCall, framework: str | None, cwd: Path, command: ShellCommand
) -> tuple[Field, YamlFile | None]:
    """The YAML file given to the program: as its first argument, or with ``--config``."""
    word = next((word for word in call.options.positional), None)
    named = Field.missing()
    if word is not None and (word.value is None or word.value.endswith((".yaml", ".yml", ".json"))):
        text = word.value
        key, equals, rest = (text or "").partition("=")
        if equals and key.replace(".", "_").lstrip("+").isidentifier() and not exists(cwd / (text or "")):
            text = rest  # config=conf/a.yaml, as in OmegaConf's command line
        given = Field.of(text, word.place, word.reason) if text else Field.not_known(word.place, word.reason)
        if framework is not None or given.known:
            named = given
    if named.absent and call.options.get("config").string:
        config = call.options.get("config")
        if framework in ("trl", "ms-swift") or str(config.value).endswith((".yaml", ".yml")):
            named = config
    path = named.string
    return named, read_yaml_at(cwd, path, command.written) if path else None


def is_llamafactory_config(config: YamlFile) -> bool:
    """Whether a YAML has arguments of LLaMA-Factory only, as a config of its ``src/train.py``."""
    return all(not config.get(name).absent for name in ("stage", "finetuning_type", "model_name_or_path"))


def read_yaml_at(
    cwd: Path, path: str, written_files: Mapping[str, tuple[tuple[Piece, ...], Place]] | None = None
) -> YamlFile | None:
    """Read a YAML file by its path relative to a folder; None if it can't be read."""
    whole = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))
    if written_files and whole in written_files:
        source = to_written_file(path, *written_files[whole]).source
        return read_yaml(source) if source is not None else None
    try:
        source = SourceFile.read(display_path(cwd / os.path.expanduser(path)))
    except UserError:
        return None
    return _parse_yaml_once(source.path, source.data, source.writable)


@lru_cache(maxsize=8)
def _parse_yaml_once(path: str, data: bytes, writable: bool) -> YamlFile:
    """The YAML file, parsed once for all launches that name it."""
    return read_yaml(SourceFile(path, data, writable=writable))


def read_launch_yaml(launch: Launch, path: str) -> YamlFile | None:
    """Read a YAML or JSON file that a launch names, which its script may also write; None if it can't be read."""
    written = launch.written_files.get(os.path.normpath(os.path.join(launch.cwd, os.path.expanduser(path))))
    if written is not None:
        return read_yaml(written.source) if written.source is not None else None
    return read_yaml_at(launch.cwd, path)


def accelerate_config_of_call(
    call: LauncherCall, cwd: Path, environment: Mapping[str, Field], command: ShellCommand
) -> tuple[Field, AccelerateConfig | None, tuple[Text, ...]]:
    """The accelerate config that a launch reads, with notes about how it was found."""
    launcher = LAUNCHERS.get(call.launcher)
    if launcher is None or not launcher.accelerate_config:
        return Field.missing(), None, ()
    field = call.launcher_options.get(launcher.accelerate_config)
    written = {path: to_written_file(path, *found).source for path, found in command.written.items()}
    return resolve_accelerate_config(field, cwd, written, launcher=call.launcher)


def named_deepspeed_config(
    call: LauncherCall, framework: str | None, framework_file: YamlFile | None, accelerate: AccelerateConfig | None
) -> Field:
    """The DeepSpeed config that a setting names: by its path, or by the name of a framework's preset."""
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
