"""Where scripts load models, and whether transformers knows about ZeRO-3 at that point."""

import ast
from collections.abc import Iterator

from gonogo.evidence.script.script import Call, Script
from gonogo.hazards.facts.zero_usage import dotted_name_or_empty

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_NON_MODEL_CLASS_WORDS = ("Tokenizer", "Processor", "Config", "Extractor", "Scheduler", "Adapter", "Dataset")
# Each of these creates the HfDeepSpeedConfig that from_pretrained looks for, or gets one.
_ZERO3_CONFIGURING_CALLS = (
    *("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments", "*.HfDeepSpeedConfig"),
    *("*.SFTConfig", "*.DPOConfig", "*.GRPOConfig", "*.PPOConfig", "*.KTOConfig", "*.ORPOConfig", "*.CPOConfig"),
    *("*.RLOOConfig", "*.OnlineDPOConfig", "*.GKDConfig", "*.RewardConfig", "*.PRMConfig"),
    *("*.parse_args_into_dataclasses", "*.parse_args_and_config", "*.parse_json_file", "*.parse_yaml_file"),
    *("*.parse_dict", "accelerate.Accelerator", "*.HfTrainerDeepSpeedConfig"),
)
_MAX_DEPTH = 3


def model_loads(script: Script, *methods: str) -> Iterator[Call]:
    """The calls of ``from_pretrained`` (or of ``methods``) of transformers' and TRL's models, in file order."""
    for call in script.calls(*(f"*.{method}" for method in methods or ("from_pretrained",))):
        owner = next((name for name in call.names if name.startswith(("transformers.", "trl."))), "")
        words = owner.split(".")
        if len(words) < 3 or any(word in words[-2] for word in _NON_MODEL_CLASS_WORDS) or not words[-2][:1].isupper():
            continue
        yield call


def zero3_configuring_calls(script: Script) -> tuple[Call, ...]:
    """The calls that create the objects from which transformers learns about ZeRO-3."""
    return tuple(script.calls(*_ZERO3_CONFIGURING_CALLS))


def _configuring_calls_by_function(script: Script) -> dict[ast.AST | None, list[Call]]:
    found: dict[ast.AST | None, list[Call]] = {}
    for call in script.cached_result(zero3_configuring_calls):
        found.setdefault(script.enclosing_function(call.node), []).append(call)
    return found


def is_zero3_configured_at(script: Script, node: ast.AST) -> bool | None:
    """Whether transformers knows about ZeRO-3 when a node runs: True, False (certainly not yet), None (unknown)."""
    return _is_configured_at(script, node, _MAX_DEPTH)


def _is_configured_at(script: Script, node: ast.AST, depth: int) -> bool | None:
    calls = script.cached_result(_configuring_calls_by_function)
    function = script.enclosing_function(node)
    if not calls and function is None:
        return None
    at = getattr(node, "lineno", 0)
    here = calls.get(function, ())
    if any(
        call.line <= at and call.node is not node and not _has_additional_condition(script, call.node, node)
        for call in here
    ):
        return True
    if function is None:
        return False if here else None
    if _has_training_arguments_parameter(function):
        return True
    if depth and calls and not function.name.startswith("__"):
        known = {_is_configured_at(script, call.node, depth - 1) for call in _calls_of_function(script, function)}
        if known and (known != {None} or not here):
            return known.pop() if len(known) == 1 else None
    return False if here else None


def _has_additional_condition(script: Script, node: ast.AST, other: ast.AST) -> bool:
    """Whether a node is under a condition that the other node is not under."""
    tests = {ast.dump(test) for test in script.guarded_by(other)}
    return any(ast.dump(test) not in tests for test in script.guarded_by(node))


def _has_training_arguments_parameter(function: _Function) -> bool:
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return any(one.arg in ("training_args", "train_args", "training_arguments") for one in arguments)


def _calls_of_function(script: Script, function: _Function) -> Iterator[Call]:
    return script.calls(function.name, f"*.{function.name}")


def assigned_variable(script: Script, node: ast.AST) -> str | None:
    """The variable (``name`` or ``self.name``) to which a call is assigned; None if it isn't a plain assignment."""
    statement = script.statement(node)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and statement.value is node:
        return dotted_name_or_empty(statement.targets[0]) or None
    return None


def is_passed_to(script: Script, name: str, *patterns: str) -> bool:
    """Whether a call that matches the patterns gets a variable as an argument."""
    for call in script.calls(*patterns):
        values = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
        if any(dotted_name_or_empty(value) == name for value in values):
            return True
    return False
