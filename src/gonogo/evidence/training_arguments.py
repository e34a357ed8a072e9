"""A run's training arguments, wherever they are given: options, a framework's YAML, calls in the script."""

from __future__ import annotations

from collections.abc import Mapping

from gonogo.evidence.field import Field
from gonogo.evidence.launch.command_line import CommandOptions
from gonogo.evidence.launch.launch import Launch
from gonogo.finding import Text, translated

_LAUNCH_UNKNOWN = translated("the files do not show how the run is launched")
_UNKNOWN_OPTIONS_REASON = translated("some options can't be determined")
_OPTION_SOURCE = "option"
_TRL_CONFIG_PREFIXES = ("SFT", "DPO", "GRPO", "Reward", "KTO", "ORPO", "CPO", "PPO", "RLOO", "GKD")
# Full names: a glob in the last part would require checking every call of a script.
ARGUMENT_CLASSES = (
    *("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments"),
    *(f"trl.{name}Config" for name in _TRL_CONFIG_PREFIXES),
)
"""Classes of training arguments; their subclasses count too."""
TRAINER_CLASSES = (
    *("transformers.Trainer", "transformers.Seq2SeqTrainer"),
    *(f"trl.{name}Trainer" for name in _TRL_CONFIG_PREFIXES),
)
"""Trainers that take such arguments."""


_MODEL_OPTIONS = ("model_name_or_path", "model", "base_model", "model_path", "model_id", "model_dir", "llm_path")


class Arguments:
    """A run's training arguments by name, from options, config file or script, in this order of precedence.

    A value is kept as written: text from options, typed from YAML and scripts. ``Field.truth`` and ``Field.number``
    handle both. Arguments that aren't given are absent: defaults aren't filled in.
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
        """Arguments of which nothing is known: each may be given."""
        return cls(complete=False, reason=_LAUNCH_UNKNOWN)

    def get(self, name: str) -> Field:
        """An argument's value; absent if it is certainly not given, unknown if it may be."""
        for fields in self._sources.values():
            field = fields.get(name)
            if field is not None and not field.absent:
                return field
        return Field.missing() if self.complete else Field.not_known(None, self._reason)

    @property
    def model(self) -> Field:
        """The argument that names the model in frameworks and scripts; missing if none has a string value."""
        return next((field for name in _MODEL_OPTIONS if (field := self.get(name)).string), Field.missing())

    def has(self, name: str) -> bool:
        """Whether the files give the argument, even if its value is unknown."""
        return any(name in fields and not fields[name].absent for fields in self._sources.values())

    def names(self) -> tuple[str, ...]:
        """The names of all arguments that are given."""
        return tuple(dict.fromkeys(name for fields in self._sources.values() for name in fields if self.has(name)))

    def source_of(self, name: str) -> str | None:
        """Where an argument is given: ``"option"``, ``"file"`` or ``"script"``; None if it isn't given."""
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
        return Arguments({"script": given}, complete=False, reason=_LAUNCH_UNKNOWN)
    files, files_complete = _arguments_from_file(launch)
    options = option_fields(launch.options)
    options.update(_hydra_overrides(launch.options))
    complete = launch.options.complete and files_complete and script_complete
    sources = {_OPTION_SOURCE: options, "file": files, "script": given}
    return Arguments(sources, complete=complete, framework=launch.framework)


def option_fields(options: CommandOptions) -> dict[str, Field]:
    """A program's options as arguments: a flag without value is true, ``--no_x`` sets ``x`` to false."""
    fields: dict[str, Field] = {}
    for option in options:
        field = option.field
        fields[option.name] = field
        if option.name.startswith("no_") and field.value is True and not option.values:
            fields.setdefault(option.name[3:], Field.of(False, field.place))
    return fields


def _hydra_overrides(options: CommandOptions) -> dict[str, Field]:
    """``name=value`` words, as in LLaMA-Factory and Hydra."""
    fields: dict[str, Field] = {}
    for word in options.positional:
        name, equals, value = (word.value or "").partition("=")
        name = name.lstrip("+")
        if equals and name.replace(".", "_").isidentifier():
            fields[name] = Field.of(value, word.place, word.reason)
    return fields


def _arguments_from_file(launch: Launch) -> tuple[dict[str, Field], bool]:
    """Arguments from the framework's YAML, or from a JSON file that is a script's only argument; True if complete."""
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
    return fields, config.is_readable


__all__ = ["ARGUMENT_CLASSES", "TRAINER_CLASSES", "Arguments", "option_fields", "read_arguments"]
