"""Finds what a script trains and how its objects were created, starting from the Trainer, engine or DDP wrapper."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.evidence.script.flow import reaching_bindings, scope_binding
from gonogo.evidence.script.syntax_index import FUNCTIONS, Binding
from gonogo.evidence.training_arguments import TRAINER_CLASSES

if TYPE_CHECKING:
    from gonogo.evidence.field import Field
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import Call, Script

DDP = "torch.nn.parallel.DistributedDataParallel"
_SELF_RETURNING_METHODS = frozenset(
    ("to", "cuda", "cpu", "half", "float", "bfloat16", "train", "eval", "requires_grad_", "merge_and_unload", "compile")
)
# Functions that return the model passed as first argument, wrapped or modified.
_MODEL_WRAPPERS = (
    *("peft.get_peft_model", "peft.prepare_model_for_kbit_training", "peft.prepare_model_for_int8_training"),
    *("peft.PeftModel.from_pretrained", "torch.compile", "peft.PeftModelForCausalLM"),
    *("torch.nn.SyncBatchNorm.convert_sync_batchnorm", "*.convert_sync_batchnorm"),
)
_MAX_DEPTH = 12


def creating_calls(script: Script, node: ast.AST | None, depth: int = 0) -> tuple[Call, ...]:
    """The calls that may have created the object of an expression; empty if unknown.

    ``model.to(device)``, ``get_peft_model(model, config)`` and the script's own functions are followed to their
    return values.
    """
    if node is None or depth > _MAX_DEPTH:
        return ()
    if isinstance(node, ast.Call):
        return _creating_calls_of_call(script, node, depth)
    if isinstance(node, ast.Name):
        index = script.index
        scope = scope_binding(index, node.id, node)
        if scope is None:
            return ()
        found: dict[ast.Call, Call] = {}
        for binding in reaching_bindings(index, scope.names[node.id], scope, node):
            for call in _creating_calls_of_binding(script, binding, depth + 1):
                found[call.node] = call
        return tuple(found.values())
    if isinstance(node, ast.IfExp):
        return (*creating_calls(script, node.body, depth + 1), *creating_calls(script, node.orelse, depth + 1))
    if isinstance(node, ast.Attribute):
        held = script.names.attribute_bindings(node)
        if held is None or held[0] is not script.names:
            return ()
        return tuple(call for binding in held[1] for call in _creating_calls_of_binding(script, binding, depth + 1))
    return ()


def _creating_calls_of_binding(script: Script, binding: Binding, depth: int) -> tuple[Call, ...]:
    if binding.kind != "assign":
        return ()
    if not binding.path:
        return creating_calls(script, binding.value, depth)
    if isinstance(binding.value, (ast.Tuple, ast.List)) and binding.path[0] < len(binding.value.elts):
        return creating_calls(script, binding.value.elts[binding.path[0]], depth) if len(binding.path) == 1 else ()
    if isinstance(binding.value, ast.Call):
        return _creating_calls_of_result(script, binding.value, binding.path, depth)
    return ()


def _creating_calls_of_call(script: Script, node: ast.Call, depth: int) -> tuple[Call, ...]:
    call = script.call_at(node)
    if isinstance(node.func, ast.Attribute) and node.func.attr in _SELF_RETURNING_METHODS:
        return creating_calls(script, node.func.value, depth + 1) or (call,)
    if any(name in _MODEL_WRAPPERS for name in call.names):
        return creating_calls(script, first_argument(call, "model"), depth + 1)
    return _creating_calls_of_result(script, node, (), depth) or (call,)


def _creating_calls_of_result(script: Script, node: ast.Call, path: tuple[int, ...], depth: int) -> tuple[Call, ...]:
    """The calls that created what one of the script's own functions returns."""
    if not isinstance(node.func, ast.Name):
        return ()
    scope = scope_binding(script.index, node.func.id, node.func)
    bindings = scope.names[node.func.id] if scope is not None else []
    if len(bindings) != 1 or not isinstance(bindings[0].node, FUNCTIONS):
        return ()
    function = bindings[0].node
    found: dict[ast.Call, Call] = {}
    for each in script.nodes(ast.Return):
        if script.index.scope_at(each).node is not function or each.value is None:
            continue
        value: ast.AST | None = each.value
        if path:
            parts = each.value.elts if isinstance(each.value, ast.Tuple) else []
            value = parts[path[0]] if len(path) == 1 and path[0] < len(parts) else None
        for call in creating_calls(script, value, depth + 1):
            found[call.node] = call
    return tuple(found.values())


def first_argument(call: Call, *names: str, index: int = 0) -> ast.expr | None:
    """The expression of an argument, by position or by one of its names."""
    arguments = call.node.args
    if len(arguments) > index and not any(isinstance(each, ast.Starred) for each in arguments[: index + 1]):
        return arguments[index]
    return next((node for name in names if (node := call.keyword_node(name)) is not None), None)


def calls_that_train(script: Script) -> Iterator[tuple[Call, ast.expr]]:
    """The calls to which a model is passed to be trained, each with the expression of the model.

    The call is a Trainer's, ``accelerator.prepare``, ``deepspeed.initialize`` or DDP's.
    """
    for call in script.calls(*TRAINER_CLASSES, "deepspeed.initialize", DDP, "*.DistributedDataParallel"):
        at = 1 if call.name == "deepspeed.initialize" else 0
        node = first_argument(call, "model", "module", index=at)
        if node is not None:
            yield call, node
    for call in script.calls("accelerate.Accelerator.prepare"):
        for each in call.node.args:
            if not isinstance(each, ast.Starred):
                yield call, each


def trained_pretrained_calls(script: Script) -> Iterator[tuple[Call, Call]]:
    """The ``from_pretrained`` calls whose models are trained, each with the call that trains it."""
    seen: set[ast.Call] = set()
    for call, node in calls_that_train(script):
        for made in creating_calls(script, node):
            if made.method == "from_pretrained" and made.node not in seen:
                seen.add(made.node)
                yield call, made


def is_trainer(call: Call) -> bool:
    """Whether a call creates one of transformers' or trl's trainers, or a similar class of the script."""
    return any(name in TRAINER_CLASSES for name in call.names)


def has_several_processes_per_node(run: Run) -> bool:
    """Whether the launch certainly starts several processes on a node."""
    if run.launch is None:
        return False
    number = run.launch.processes_per_node.number
    if number is not None:
        return number > 1
    size, nodes = run.world_size, run.launch.nodes.number
    return size is not None and isinstance(nodes, int) and size > nodes


def is_certainly_ddp(run: Run) -> bool:
    """Whether the launch certainly trains with DistributedDataParallel: several processes, no DeepSpeed, no FSDP."""
    launch = run.launch
    if launch is None or run.uses_deepspeed is not False or not has_several_processes_per_node(run):
        return False
    if launch.launcher == "accelerate":
        if any(name in launch.launcher_options for name in ("use_fsdp", "use_megatron_lm", "cpu", "tpu")):
            return False
        if run.accelerate is not None:
            return bool(run.accelerate.distributed_type.value == "MULTI_GPU")
        return launch.accelerate_config.absent
    fsdp = run.arguments.get("fsdp")
    return launch.launcher in ("torchrun", "torch.distributed.launch") and (fsdp.absent or fsdp.value in ("", False))


def run_mentions(run: Run, script: Script, *words: bytes) -> bool:
    """Whether the script, or another one of the run, contains any of the words."""
    return run.any_script_contains(*words) or any(word in script.source.data for word in words)


def gradient_checkpointing_setting(run: Run) -> Field:
    """The argument that turns gradient checkpointing on, under either of its names."""
    field = run.arguments.get("gradient_checkpointing")
    return field if not field.absent else run.arguments.get("activation_checkpointing")


def attribute_assignments(run: Run, name: str) -> Iterator[Field]:
    """The values that scripts assign to an attribute after parsing.

    ``arguments.gradient_checkpointing = True``, ``setattr(arguments, "gradient_checkpointing", True)``, and
    ``dataclasses.replace(arguments, gradient_checkpointing=True)``.
    """
    word = name.encode()
    for script in run.scripts:
        if word not in script.source.data:
            continue
        for node in script.nodes(ast.Assign):
            if any(isinstance(target, ast.Attribute) and target.attr == name for target in node.targets):
                yield script.field(node.value)
        for call in script.calls("setattr"):
            attribute, value = call.argument(1), call.argument(2)
            if attribute.value == name and value is not None:
                yield value
        for call in script.calls("dataclasses.replace"):
            if call.has(name):
                yield call.keyword(name)


def is_checkpointing_reentrant(run: Run) -> bool | None:
    """Whether the Trainer's gradient checkpointing is reentrant: the default before transformers 5.

    A value set by code wins if there is only one; None if it may be set conditionally.
    """
    given = run.arguments.get("gradient_checkpointing_kwargs")
    if later := list(attribute_assignments(run, "gradient_checkpointing_kwargs")):
        if len(later) > 1 or not isinstance(later[0].value, dict) or later[0].value.get("use_reentrant") is not False:
            return None
        return False
    if given.absent:
        return run.environment.within("transformers", "<5")
    value = given.value
    if isinstance(value, str):
        value = False if "false" in value.lower() else True if "true" in value.lower() else None
    elif isinstance(value, dict):
        value = value.get("use_reentrant")
    return value if isinstance(value, bool) else None
