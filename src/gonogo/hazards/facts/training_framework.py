"""Finds from a run's files how it trains: with transformers' Trainer, with accelerate, or in its own loop."""

from collections.abc import Callable, Iterator
from functools import lru_cache

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.field import Field
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Call
from gonogo.evidence.training_arguments import TRAINER_CLASSES
from gonogo.finding import Edit, Fix, Text
from gonogo.hazards.hazard import Hazard

_PARSER_CLASSES = ("*.HfArgumentParser", "*.TrlParser", "*.H4ArgumentParser")
_TRAINING_ARGUMENTS_CLASSES = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")


def trainer_calls(run: Run) -> Iterator[Call]:
    """The calls in the run's scripts that create a Trainer or an instance of their own subclass of it."""
    for script in run.scripts:
        yield from script.calls(*TRAINER_CLASSES)


@lru_cache(maxsize=16)
def uses_trainer(run: Run) -> bool | None:
    """Whether transformers' Trainer trains, so that TrainingArguments apply; None if no script can be read."""
    if run.framework or (run.launch is not None and run.launch.framework):
        return True
    if not run.scripts:
        return None
    if next(trainer_calls(run), None) is not None:
        return True
    calls = (next(script.calls(*_TRAINING_ARGUMENTS_CLASSES, *_PARSER_CLASSES), None) for script in run.scripts)
    return any(call is not None for call in calls) and not _has_own_loop(run)


def _has_own_loop(run: Run) -> bool:
    """Whether the scripts call ``backward`` themselves, and no class of theirs is a Trainer whose step that is.

    Such a program may still parse TrainingArguments, for the options alone.
    """
    if any(next(script.subclasses(*TRAINER_CLASSES), None) is not None for script in run.scripts):
        return False
    return any(next(script.calls("*.backward"), None) is not None for script in run.scripts)


@lru_cache(maxsize=16)
def uses_stock_training_arguments(run: Run) -> bool:
    """Whether the arguments certainly are transformers' own with its defaults: no subclass, framework or trl."""
    if run.framework or (run.launch is not None and run.launch.framework) or not run.scripts:
        return False
    if any(next(script.subclasses(*_TRAINING_ARGUMENTS_CLASSES), None) is not None for script in run.scripts):
        return False
    names = {call.name for script in run.scripts for call in script.calls(*_TRAINING_ARGUMENTS_CLASSES)}
    if names:
        return names <= set(_TRAINING_ARGUMENTS_CLASSES)
    return any(_parses_training_arguments(call) for script in run.scripts for call in script.calls(*_PARSER_CLASSES))


def _parses_training_arguments(call: Call) -> bool:
    """Whether a parser is given TrainingArguments itself."""
    import ast

    if not call.node.args:
        return False
    given = call.node.args[0]
    types = given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given]
    return any(call.script.qualified(one) in _TRAINING_ARGUMENTS_CLASSES for one in types)


@lru_cache(maxsize=16)
def uses_accelerate(run: Run) -> bool | None:
    """Whether accelerate prepares the model, directly or in the Trainer; None if no script can be read."""
    trainer = uses_trainer(run)
    if trainer or not run.scripts:
        return trainer
    return any(next(script.calls("accelerate.Accelerator"), None) is not None for script in run.scripts)


@lru_cache(maxsize=16)
def uses_deepspeed_directly(run: Run) -> bool:
    """Whether the scripts call ``deepspeed.initialize`` themselves and use neither transformers nor accelerate."""
    if not run.scripts or uses_accelerate(run):
        return False
    return any(next(script.calls("deepspeed.initialize"), None) is not None for script in run.scripts)


def is_config_from_accelerate_yaml(run: Run) -> bool:
    """Whether accelerate makes the DeepSpeed config from its YAML, since no JSON is given."""
    yaml = run.accelerate
    return yaml is not None and run.config is not None and run.config.name == yaml.source.path


def mentions(run: Run, *words: str) -> bool:
    """Whether one of the run's scripts contains any of the words, whatever their use."""
    return run.any_script_contains(*(word.encode() for word in words))


def try_edit(make_edit: Callable[[], Edit | None]) -> Edit | None:
    """The edit, or None if the value is in no file that can be changed."""
    try:
        edit = make_edit()
    except KeyError:
        return None
    return edit if edit is not None and edit.before != edit.after else None


def fix_with_edits(title: Text, *makers: Callable[[], Edit | None], safe: bool = True) -> tuple[Fix, ...]:
    """A fix made of all the edits, or none if one of them can't be made."""
    edits = [try_edit(make) for make in makers]
    if not edits or any(edit is None for edit in edits):
        return ()
    return (Hazard.fix(title, *(edit for edit in edits if edit is not None), safe=safe),)


def integer_setting(config: DeepSpeedConfig, *keys: str) -> Field | None:
    """An integer given in the config itself, else None."""
    field = config.raw(*keys)
    return field if field.known and isinstance(field.value, int) and not isinstance(field.value, bool) else None


def format_json(value: object) -> str:
    """The value as JSON text."""
    import json

    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(value)
