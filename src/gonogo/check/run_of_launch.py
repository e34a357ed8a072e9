"""Make a run from a launch: read the files that the launch names, and the files that those name."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gonogo.evidence.config.accelerate import AccelerateConfig, is_accelerate_config, read_accelerate_config
from gonogo.evidence.config.deepspeed import (
    DeepSpeedConfig,
    deepspeed_config_from_tree,
    is_deepspeed_config,
    read_deepspeed_config,
)
from gonogo.evidence.config.deepspeed_auto import AutoValues
from gonogo.evidence.config.model import ModelConfig, read_model_config
from gonogo.evidence.document.tree import Member, TreeNode
from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.field import Field
from gonogo.evidence.files import Files
from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.paths import is_file, is_folder, resolve_path
from gonogo.evidence.run import ImportOutsideSysPath, Run
from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile
from gonogo.evidence.training_arguments import ARGUMENT_CLASSES, Arguments, read_arguments
from gonogo.finding import Skipped, Text, translated

# Keys of accelerate's deepspeed_config, mapped to DeepSpeed's: DeepSpeedPlugin.__post_init__ (utils/dataclasses.py).
_DEEPSPEED_KEYS = {
    "zero_stage": ("zero_optimization", "stage"),
    "offload_optimizer_device": ("zero_optimization", "offload_optimizer", "device"),
    "offload_param_device": ("zero_optimization", "offload_param", "device"),
    "offload_optimizer_nvme_path": ("zero_optimization", "offload_optimizer", "nvme_path"),
    "offload_param_nvme_path": ("zero_optimization", "offload_param", "nvme_path"),
    "zero3_save_16bit_model": ("zero_optimization", "stage3_gather_16bit_weights_on_model_save"),
    "gradient_accumulation_steps": ("gradient_accumulation_steps",),
    "gradient_clipping": ("gradient_clipping",),
}
# The plugin's default if the YAML has no zero_stage.
_DEFAULT_STAGE = 2

if TYPE_CHECKING:
    from gonogo.evidence.script.project import Project

# A project's file is read as a training script if it contains one of these names.
_FRAMEWORK_NAMES = (
    *(b"torch", b"transformers", b"deepspeed", b"accelerate", b"peft", b"trl", b"swift", b"llamafactory"),
    *(b"bitsandbytes", b"lightning", b"datasets"),
)
_PLACEHOLDER_PATTERN = re.compile(rb":\s*([A-Z][A-Z0-9_]{3,})\s*[,}\r\n]")
"""``"train_batch_size": BATCH_SIZE``: a placeholder that a script replaces by a value, for example with sed."""
_CONSTANT_NAMES = frozenset({b"TRUE", b"FALSE", b"NULL", b"NONE", b"INFINITY"})
_TEMPLATE_NOT_CHECKED = translated("{path} is a config template that no launch uses unchanged, so it was not checked")
_MODULE_NOT_ON_PATH = translated(
    "module {name} was not checked: {path}:{line} imports it, but it is not on Python's path"
)
_SUBMODULE_NOT_HERE = translated(
    "this git submodule is not checked out, and {path}:{line} imports it: run git submodule update --init"
)
_UNKNOWN_SYS_PATH_CHANGE = translated(
    "some modules may not have been checked: {path}:{line} changes sys.path in a way that can't be "
    "determined from the source"
)
_UNKNOWN_DEEPSPEED_CONFIG = translated("can't determine which DeepSpeed config the launch uses: {why}")


class RunBuilder:
    """Makes runs, and records which files they use."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.used: set[str] = set()
        """Paths, as displayed, of files that belong to a run."""
        self.notes: list[Text] = []
        self._projects: dict[tuple[object, ...], Project] = {}
        """By project root and additions to ``sys.path``, so that launches of one project share what was read."""

    def run_of(self, launch: Launch, environment: Environment) -> Run:
        """The run that a launch starts."""
        self.used.add(launch.source.path)
        self.notes += [note for note in launch.notes if note not in self.notes]
        accelerate = self._accelerate_config_of(launch)
        scripts, absent = self._scripts_of(launch, accelerate)
        given, complete = _training_arguments_in(scripts)
        arguments = read_arguments(launch, given, script_complete=complete)
        model = _loaded_model(arguments, scripts, launch.cwd)
        for field in (launch.framework_config,):
            if path := launch.path_of(field):
                self._read_and_mark_used(path)
        run = Run(
            environment,
            launch=launch,
            accelerate=accelerate,
            arguments=arguments,
            scripts=scripts,
            model=model,
            off_path=absent,
        )
        run.config_field, run.config = self._deepspeed_config_of(launch, run)
        return run

    def run_of_config(self, source: SourceFile, environment: Environment) -> Run | None:
        """A run that consists of a DeepSpeed or accelerate config only; None if the file is neither."""

        if source.path.lower().endswith((".yaml", ".yml")):
            if b"distributed_type" not in source.data:
                return None

            accelerate = read_accelerate_config(source)
            return Run(environment, accelerate=accelerate) if is_accelerate_config(accelerate) else None
        if not is_deepspeed_config(source):
            return None
        if any(word[1] not in _CONSTANT_NAMES for word in _PLACEHOLDER_PATTERN.finditer(source.data)):
            self.notes.append(_TEMPLATE_NOT_CHECKED.format(path=source.path))
            return None
        return Run(environment, config=read_deepspeed_config(source), config_field=Field.of(source.path))

    def runs_of_scripts(
        self, sources: Sequence[SourceFile], environment: Environment, named_paths: set[str]
    ) -> Iterator[Run]:
        """The scripts that no launch starts or imports, each as a run with the arguments and config in it."""
        from gonogo.evidence.script.project import Project, read_script

        loose = [
            one for one in sources if one.path not in self.used and any(word in one.data for word in _FRAMEWORK_NAMES)
        ]
        # Scripts in one folder usually share imports.
        folder = os.path.commonpath([os.path.dirname(os.path.abspath(one.path)) for one in loose]) if loose else ""
        project = Project(Path(folder)) if len(loose) > 1 else None
        for source in loose:
            script = read_script(source, project)
            if self._is_parsed(script) or source.path in named_paths:
                given, complete = _training_arguments_in((script,))
                arguments = Arguments({"script": given}, complete=complete and bool(given))
                run = Run(environment, arguments=arguments, scripts=(script,))
                run.config = self._deepspeed_config_in_scripts((script,), run)
                if run.config is not None:
                    run.config_field = Field.of(run.config.name)
                run.model = _loaded_model(arguments, (script,), Path(source.path).parent)
                yield run

    def _scripts_of(
        self, launch: Launch, accelerate: AccelerateConfig | None
    ) -> tuple[tuple[Script, ...], tuple[ImportOutsideSysPath, ...]]:
        """The program with the project's modules that it imports, and the imports not on its ``sys.path``."""
        from gonogo.check.python_path import (
            imports_not_on_path,
            project_root,
            python_path_of,
            submodules_not_checked_out,
        )
        from gonogo.evidence.script.module_search import may_change_sys_path
        from gonogo.evidence.script.project import Project, read_script

        inline = launch.heredoc.source if launch.heredoc is not None else None
        if inline is not None:
            return (read_script(inline),), ()
        path = _program_of(launch)
        written = launch.written_files.get(os.path.normpath(path)) if path is not None else None
        if written is not None and written.source is not None:
            return (read_script(written.source),), ()
        if path is None or not is_file(path):
            return (), ()
        source = self._read_and_mark_used(path)
        if source is None:
            return (), ()
        root, looked_in = project_root(launch, path), python_path_of(launch, path, accelerate)
        own = path if may_change_sys_path(source.data) else None
        key = (resolve_path(root), looked_in, own)
        project = self._projects.setdefault(key, Project(root, path=looked_in))
        entries = [project.script(source), *_parent_packages(launch, path, project)]
        scripts = tuple(dict.fromkeys(script for entry in entries for script in project.all_scripts(entry)))
        for script in scripts:
            script.source.path = self.files.display_path(script.source.path)
            self.files.sources.setdefault(script.source.path, script.source)
            self.used.add(script.source.path)
            self._is_parsed(script)
        absent = imports_not_on_path(launch, project, scripts)
        for folder, (script, node) in submodules_not_checked_out(project, scripts).items():
            why = _SUBMODULE_NOT_HERE.format(path=script.source.path, line=node.lineno)
            gap = Skipped(Text(folder, folder), why)
            if gap.what not in [one.what for one in self.files.skipped]:
                self.files.skipped.append(gap)
        self._note_unresolved_imports(absent, project, source)
        return scripts, absent

    def _note_unresolved_imports(
        self, off_path_imports: tuple[ImportOutsideSysPath, ...], project: Project, source: SourceFile
    ) -> None:
        """Add a note for each module that was not checked."""
        notes = [
            _MODULE_NOT_ON_PATH.format(name=each.name, path=each.script.source.path, line=each.node.lineno)
            for each in off_path_imports
        ]
        if project.search.unread:
            notes.append(_UNKNOWN_SYS_PATH_CHANGE.format(path=source.path, line=project.search.unread[0]))
        self.notes += [note for note in notes if note not in self.notes]

    def _is_parsed(self, script: Script) -> bool:
        problem = script.problem
        if (
            problem is not None and not problem.is_rejected_by_python
        ):  # a limit of gonogo's parser: must not count as a pass
            path = script.source.path
            self.files.skipped.append(Skipped(Text(path, path), problem.message))
        return problem is None

    def _read_and_mark_used(self, path: Path) -> SourceFile | None:
        source = self.files.read(path)
        if source is not None:
            self.used.add(source.path)
        return source

    def _accelerate_config_of(self, launch: Launch) -> AccelerateConfig | None:
        path = launch.path_of(launch.accelerate_config)
        if path is None:
            return None

        whole = os.path.normpath(path)
        written = launch.written_files.get(whole)
        if written is not None:
            inline = written.source
            return read_accelerate_config(inline) if inline is not None else None
        source = self._read_and_mark_used(path) if is_file(path) else None
        return read_accelerate_config(source) if source is not None else None

    def _deepspeed_config_of(self, launch: Launch, run: Run) -> tuple[Field, DeepSpeedConfig | None]:
        """The field that names the run's DeepSpeed config, and the config itself."""
        field = launch.deepspeed_config
        if field.known and isinstance(field.value, str):
            return field, self._named_config(field, launch, run)
        if field.unknown and not _involves_deepspeed(launch, run):
            return field, None  # unknown arguments, and no sign that the program uses DeepSpeed
        if field.unknown:
            where = f"{launch.source.path}:{launch.line}"
            why = field.reason or translated("no file contains the value")
            self.files.skipped.append(Skipped(Text(where, where), _UNKNOWN_DEEPSPEED_CONFIG.format(why=why)))
            return field, None
        found = self._deepspeed_config_in_scripts(run.scripts, run, launch.cwd)
        if found is not None:
            return Field.of(found.name), found
        if run.accelerate is not None and run.accelerate.enables_deepspeed:
            return Field.of(run.accelerate.source.path), config_of_accelerate(run.accelerate)
        handed = any(True for script in run.scripts for _ in _config_arguments(script))
        surely_none = not handed and (bool(run.scripts) or launch.framework is not None) and run.arguments.complete
        return (Field.missing() if surely_none else Field.not_known()), None

    def _named_config(self, field: Field, launch: Launch, run: Run) -> DeepSpeedConfig | None:
        """The config that a field names: a file, one that the launch script writes, or a framework's preset."""
        path = launch.path_of(field)
        framework = launch.framework
        world, hidden, accelerate = launch.world_size, _hidden_size(run.model), run.accelerate
        written = launch.written_files.get(os.path.normpath(path)) if path is not None else None
        source = written.source if written is not None else None
        on_disk = path is not None and is_file(path)
        if written is None and path is not None and on_disk:
            source = self._read_and_mark_used(path)
        if source is not None:
            return read_deepspeed_config(
                source, run.arguments, world_size=world, hidden_size=hidden, accelerate=accelerate, framework=framework
            )
        if framework is None or written is not None or on_disk:
            return None
        from gonogo.evidence.config.deepspeed_presets import preset_config

        return preset_config(
            framework,
            str(field.value),
            run.arguments,
            version=run.environment.version(framework),
            world_size=world,
            hidden_size=hidden,
            accelerate=accelerate,
        )

    def _deepspeed_config_in_scripts(
        self, scripts: Sequence[Script], run: Run, cwd: Path | None = None
    ) -> DeepSpeedConfig | None:
        """The config that a script passes on: a dict in the script, or a path that it contains."""
        from gonogo.evidence.script.deepspeed_dicts import dict_to_tree, resolve_dict

        world = run.launch.world_size if run.launch is not None else Field.not_known()
        hidden = _hidden_size(run.model)
        for script in scripts:
            for field, node in _config_arguments(script):
                found = resolve_dict(script, node)
                if found is not None:
                    place = script.place(found)
                    name = f"{script.source.path}:{place.line}"
                    auto = AutoValues(run.arguments, world_size=world, hidden_size=hidden)
                    return deepspeed_config_from_tree(
                        dict_to_tree(script, found), name=name, source=script.source, auto=auto
                    )
                path = field.string
                if path and path.endswith(".json"):
                    for folder in dict.fromkeys((cwd or Path.cwd(), Path(script.source.path).parent)):
                        if is_file(folder / path) and (source := self._read_and_mark_used(folder / path)) is not None:
                            return read_deepspeed_config(source, run.arguments, world_size=world, hidden_size=hidden)
        return None


def _config_arguments(script: Script) -> Iterator[tuple[Field, ast.expr | None]]:
    from gonogo.evidence.script.deepspeed_dicts import deepspeed_configs_in

    return deepspeed_configs_in(script)


def _hidden_size(model: ModelConfig | None) -> Field:
    size = model.hidden_size if model is not None else None
    return Field.of(size) if size is not None else Field.not_known()


def _training_arguments_in(scripts: Sequence[Script]) -> tuple[dict[str, Field], bool]:
    """The training arguments that scripts set themselves, and whether they are complete."""
    given: dict[str, Field] = {}
    complete = True
    for script in scripts:
        for call in script.calls(*ARGUMENT_CLASSES):
            complete = complete and not call.has_unknown_kwargs
            for name in call.keywords:
                given.setdefault(name, call.keyword(name))
        for one in script.subclasses(*ARGUMENT_CLASSES):
            for name in one.defaults:
                default = one.default(name)
                if not (default.known and default.value is None):
                    given.setdefault(name, default)
    return given, complete


def _loaded_model(arguments: Arguments, scripts: Sequence[Script], folder: Path) -> ModelConfig | None:
    """The model that the run loads: from its arguments, or else from a script's call of ``from_pretrained``."""
    if text := arguments.model.string:
        return read_model_config(text, folder)
    for script in scripts:
        for call in script.calls("*Model*.from_pretrained", "*For*.from_pretrained"):
            text = call.argument(0).string or call.keyword("pretrained_model_name_or_path").string
            if text:
                return read_model_config(text, folder)
    return None


def _parent_packages(launch: Launch, program: Path, project: Project) -> list[Script]:
    """The parent packages that ``-m a.b.c`` imports before the program runs."""
    name = launch.program.string if launch.program_kind == "module" else None
    parts = name.split(".")[:-1] if name else []
    folder = program.parent if program.name != "__main__.py" else program.parent.parent
    found: list[Script] = []
    for depth in range(len(parts), 0, -1):
        file = folder / "__init__.py"
        script = project.script_at(os.path.realpath(file), ".".join(parts[:depth])) if is_file(file) else None
        found += [script] if script is not None else []
        folder = folder.parent
    return found[::-1]


def _involves_deepspeed(launch: Launch, run: Run) -> bool:
    """Whether a run may use DeepSpeed, by its launcher, script, program or config."""
    if launch.launcher == "deepspeed" or launch.framework is not None or b"deepspeed" in launch.source.data.lower():
        return True
    if run.accelerate is not None and run.accelerate.enables_deepspeed is not False:
        return True
    if launch.launcher == "python":
        return False
    if run.scripts and not run.off_path:
        # A Trainer may get a config from its command-line arguments alone.
        return run.any_script_contains(
            b"deepspeed", b"DeepSpeed", b"HfArgumentParser", b"TrlParser", b"TrainingArguments"
        )
    return True


def _program_of(launch: Launch) -> Path | None:
    """The file that the launch runs: a script, or the module that ``-m`` resolves to."""
    if launch.program_kind == "script":
        return launch.path_of(launch.program)
    name = launch.program.string if launch.program_kind == "module" else None
    if not name or not is_folder(launch.cwd):
        return None
    from gonogo.check.python_path import module_file

    return module_file(launch, name)


def config_of_accelerate(accelerate: AccelerateConfig) -> DeepSpeedConfig:
    """The equivalent DeepSpeed config; its values have their places in the YAML."""
    root: dict[str, Member] = {}
    for key, keys in _DEEPSPEED_KEYS.items():
        field = accelerate.get("deepspeed_config", key)
        if field.absent:
            if key != "zero_stage":
                continue
            field = Field.of(_DEFAULT_STAGE, accelerate.key_place("deepspeed_config"))
        _set_member(root, keys, field, accelerate)
    precision = accelerate.get("mixed_precision")
    if precision.value in ("fp16", "bf16"):
        _set_member(root, (precision.value, "enabled"), Field.of(True, precision.place), accelerate)
    return deepspeed_config_from_tree(_object_node(root), name=accelerate.source.path, source=accelerate.source)


def _set_member(members: dict[str, Member], keys: tuple[str, ...], field: Field, accelerate: AccelerateConfig) -> None:
    """Set a value; the objects created around it get the place of accelerate's own ``deepspeed_config``."""
    name, *rest = keys
    if not rest:
        members[name] = Member(field.place, TreeNode(field))
        return
    before = members.get(name)
    inner = dict(before.node.members or {}) if before is not None else {}
    _set_member(inner, tuple(rest), field, accelerate)
    place = accelerate.key_place("deepspeed_config")
    members[name] = Member(place, _object_node(inner, Field(None, place=place)))


def _object_node(members: dict[str, Member], field: Field | None = None) -> TreeNode:
    """A tree node of an object with these members."""
    value = {name: member.node.field.value for name, member in members.items()}
    return TreeNode(Field.of(value, field.place if field is not None else None), members)
