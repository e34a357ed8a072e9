"""Changes a setting where the run defines it: launch option, framework YAML, script, or DeepSpeed config."""

from __future__ import annotations

import ast
import contextlib
from typing import TYPE_CHECKING, Any

from gonogo.evidence.training_arguments import ARGUMENT_CLASSES
from gonogo.trials.cure.batch import KEYS, accepts_training_arguments

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.finding import Edit

_MODEL_CONSTRUCTORS = (
    "transformers.*For*.from_pretrained",
    "transformers.*For*",
    "transformers.*LMHeadModel",
    "*LMHeadModel",
)

_ENABLE_CHECKPOINTING = 'gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})'


def set_argument(run: Run, name: str, value: Any) -> list[Edit] | None:
    """The edits that set a training argument; None if there is no place for it that can be edited."""
    edits: list[Edit] = []
    key = KEYS.get(name)
    if key is not None and run.config is not None and run.config.get(key).number is not None:
        if not run.config.is_auto(key) and run.config.get(key).number != value:
            with contextlib.suppress(KeyError):
                edits.append(run.config.replacing(key, value=value))
        if not run.arguments.has(name):
            return edits or None
    if not accepts_training_arguments(run):
        return edits or None
    edit = _argument_edit(run, name, value)
    if edit is None or edit.before == edit.after:
        return None
    return [*edits, edit]


def _argument_edit(run: Run, name: str, value: Any) -> Edit | None:
    launch = run.launch
    source = run.arguments.source_of(name)
    if launch is not None and source == "option":
        return launch.options.replacing(name, str(value)) if launch.options.can_edit(name) else None
    if launch is not None and launch.framework_config.known and launch.framework_config.string:
        return _yaml_edit(run, name, value)
    for script in run.scripts:
        for call in script.calls(*ARGUMENT_CLASSES):
            return script.setting_keyword(call, name, repr(value))
    if launch is not None:
        edit = launch.options.adding(name, str(value))
        return edit if edit.after else None
    return None


def _yaml_edit(run: Run, name: str, value: Any) -> Edit | None:
    from gonogo.evidence.launch.configs import read_launch_yaml

    assert run.launch is not None
    config = read_launch_yaml(run.launch, run.launch.framework_config.string or "")
    try:
        return config.inserting(name, value=value) if config is not None else None
    except KeyError:
        return None


def set_checkpointing(run: Run) -> list[Edit] | None:
    """The edits that turn gradient checkpointing on; None if it is on already, or there is no place for it."""
    if run.arguments.get("gradient_checkpointing").truth is True:
        return None
    if any(True for script in run.scripts for _ in script.calls("*.gradient_checkpointing_enable")):
        return None
    if accepts_training_arguments(run):
        return set_argument(run, "gradient_checkpointing", True)
    for script in run.scripts:
        for call in script.calls(*_MODEL_CONSTRUCTORS):
            statement = script.statement(call.node)
            if isinstance(statement, ast.Assign) and statement.value is call.node:
                target = script.place(statement.targets[0]).text
                edit = script.inserting_after(statement, f"{target}.{_ENABLE_CHECKPOINTING}")
                return [edit] if edit is not None else None
    return None


def set_zero(run: Run, settings: dict[str, Any]) -> list[Edit] | None:
    """The edits that set keys of ``zero_optimization``; None if no config can be edited."""
    config = run.config
    if config is None:
        return None
    try:
        if not config.raw("zero_optimization").known:
            return [config.inserting("zero_optimization", value=settings)]
        edits = []
        for key, value in settings.items():
            written = config.raw("zero_optimization", key)
            if not isinstance(value, dict) or not isinstance(written.get(), dict):
                edits.append(config.inserting("zero_optimization", key, value=value))
                continue
            edits += [
                config.inserting("zero_optimization", key, inner, value=one)
                for inner, one in value.items()
                if config.raw("zero_optimization", key, inner).get() != one
            ]
        return edits
    except KeyError:
        return None
