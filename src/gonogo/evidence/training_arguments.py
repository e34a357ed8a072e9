"""The training arguments of a run, wherever they are given: options, a framework's YAML, calls in the script."""

from __future__ import annotations

from collections.abc import Mapping

from gonogo.evidence.field import Field
from gonogo.evidence.launch.command_line import CommandOptions
from gonogo.evidence.launch.launch import Launch
from gonogo.finding import Text, translated

_NO_LAUNCH = translated("the files do not show how the run is launched")
_UNKNOWN_OPTIONS_REASON = translated("some options can't be determined")
_OPTION = "option"
_TRL_CONFIG_PREFIXES = ("SFT", "DPO", "GRPO", "Reward", "KTO", "ORPO", "CPO", "PPO", "RLOO", "GKD")
# Named whole: a glob in a call's last part would have every call of a script looked at.
ARGUMENT_CLASSES = (
    *("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments"),
    *(f"trl.{name}Config" for name in _TRL_CONFIG_PREFIXES),
)
"""Classes of training arguments; what derives from them counts as them."""
TRAINER_CLASSES = (
    *("transformers.Trainer", "transformers.Seq2SeqTrainer"),
    *(f"trl.{name}Trainer" for name in _TRL_CONFIG_PREFIXES),
)
"""Trainers that take such arguments."""


_MODEL_OPTIONS = ("model_name_or_path", "model", "base_model", "model_path", "model_id", "model_dir", "llm_path")


class Arguments:
    """Training arguments by name, with the strongest source first: option, config file, script.

    A value is as it is written: text from options, typed from YAML and scripts. ``Field.truth`` and ``Field.number``
    read both. Arguments that nothing gives are absent: defaults are not shown.
    """

    def __init__(
        self,
        sources: Mapping[str, Mapping[str, Field]] | None = None,
        *,
        complete: bool = True,
        reason: Text | None = None,
        framework: str | None = None,
    ) -> None:
        self._sources = dict(sources or {})
        self.complete = complete
        """Whether an argument that is not shown is surely not given."""
        self._reason = reason or _UNKNOWN_OPTIONS_REASON
        self.framework = framework

    @classmethod
    def unknown(cls) -> Arguments:
        """Nothing is known: every argument may be given."""
        return cls(complete=False, reason=_NO_LAUNCH)

    def get(self, name: str) -> Field:
        """An argument's value; absent where it is surely not given, unknown where it may be."""
        for fields in self._sources.values():
            field = fields.get(name)
            if field is not None and not field.absent:
                return field
        return Field.missing() if self.complete else Field.not_known(None, self._reason)

    @property
    def model(self) -> Field:
        """The argument that names the model, as frameworks and scripts call it; missing where none is a text."""
        return next((field for name in _MODEL_OPTIONS if (field := self.get(name)).string), Field.missing())

    def has(self, name: str) -> bool:
        """Whether the files give the argument, also where its value can't be told."""
        return any(name in fields and not fields[name].absent for fields in self._sources.values())

    def names(self) -> tuple[str, ...]:
        """The names of all arguments that are given."""
        return tuple(dict.fromkeys(name for fields in self._sources.values() for name in fields if self.has(name)))

    def source_of(self, name: str) -> str | None:
        """Where an argument is given: ``"option"``, ``"file"`` or ``"script"``; None where it is not."""
        for source, fields in self._sources.items():
            if name in fields and not fields[name].absent:
                return source
        return None


def read_arguments(
    launch: Launch | None, script: Mapping[str, Field] | None = None, *, script_complete: bool = True
) -> Arguments:
    """The training arguments of a launch. ``script``: keywords of ``TrainingArguments(…)`` in its script."""
    given = dict(script or {})
    if launch is None:
        return Arguments({"script": given}, complete=False, reason=_NO_LAUNCH)
    files, files_complete = _arguments_from_file(launch)
    options = option_fields(launch.options)
    options.update(_overrides(launch.options))
    complete = launch.options.complete and files_complete and script_complete
    sources = {_OPTION: options, "file": files, "script": given}
    return Arguments(sources, complete=complete, framework=launch.framework)


def option_fields(options: CommandOptions) -> dict[str, Field]:
    """A program's options as arguments: a flag alone is true, ``--no_x`` makes ``x`` false."""
    fields: dict[str, Field] = {}
    for option in options:
        field = option.field
        fields[option.name] = field
        if option.name.startswith("no_") and field.value is True and not option.values:
            fields.setdefault(option.name[3:], Field.of(False, field.place))
    return fields


def _overrides(options: CommandOptions) -> dict[str, Field]:
    """``name=value`` words, as LLaMA-Factory and Hydra take them."""
    fields: dict[str, Field] = {}
    for word in options.positional:
        name, equals, value = (word.value or "").partition("=")
        name = name.lstrip("+")
        if equals and name.replace(".", "_").isidentifier():
            fields[name] = Field.of(value, word.place, word.reason)
    return fields


def _arguments_from_file(launch: Launch) -> tuple[dict[str, Field], bool]:
    """What the framework's YAML, or the JSON that is a script's only argument, gives."""
    field = launch.framework_config
    if field.absent:
        return {}, True
    path = field.string
    if path is None:
        return {}, False
    from gonogo.evidence.launch.configs import read_launch_yaml

    config = read_launch_yaml(launch, path)
    if config is None:
        return {}, False
    fields: dict[str, Field] = {}
    for keys, value in config.entries():
        if len(keys) == 1 and value.value is not None:
            fields[keys[0]] = value
    return fields, config.readable


__all__ = ["ARGUMENT_CLASSES", "TRAINER_CLASSES", "Arguments", "option_fields", "read_arguments"]
