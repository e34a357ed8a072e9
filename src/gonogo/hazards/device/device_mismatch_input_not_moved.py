import ast
import re
from collections.abc import Iterator

import msgspec

from gonogo.evidence.library import is_library_path
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import lazy_compile
from gonogo.evidence.script.script import ClassInfo
from gonogo.hazards.device._batch_to_engine import move_batch_to_engine
from gonogo.hazards.device._plain_tensors import (
    MODULES,
    creates_tensors_on_cpu,
    find_tensor_factory_call,
    is_moved_later,
)
from gonogo.hazards.facts.mismatch_in_log import (
    LoggedDeviceMismatch,
    MisplacedTensor,
    device_mismatches_in_training,
    is_model_code,
)
from gonogo.hazards.rule import (
    Certainty,
    Finding,
    Findings,
    Fix,
    Hazard,
    RehearsalRecord,
    Run,
    Script,
    Text,
    translated,
)

_INPUT_NAME_PATTERN = lazy_compile(
    r"\b(input_ids|\w*labels?|targets?|\w*mask\w*|position_ids|token_type_ids|pixel_values|\w*grid_thw|input_values"
    r"|input_features|timesteps?|batch|inputs|images?)\b",
    re.IGNORECASE,
)
_INPUT_BY_OPERATOR_ARGUMENT = {"index": "input_ids", "indices": "input_ids", "target": "labels", "mat2": "position_ids"}
_JOINS = ("torch.cat", "torch.concat", "torch.stack", "torch.where")
_LAYER_CLASSES = ("torch.nn.Embedding", "torch.nn.Linear", "torch.nn.LayerNorm")


class _CreatedTensor(msgspec.Struct, frozen=True, eq=False):
    """A tensor that a forward creates without a device.

    ``beside`` is an input of the forward that is certainly a tensor; empty if there is none.
    """

    owner: str
    call: ast.Call
    use: ast.AST
    used_by: str
    beside: str


class DeviceMismatchInputNotMoved(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A tensor created in a forward without a device, then combined with the inputs or passed to a layer."""
        for made in _tensors_created_in_forward(script, run):
            device = f"{made.beside}.device" if made.beside else "x.device"
            edit = script.setting_keyword(made.call, "device", device) if made.beside else None
            yield self.finding(
                self.texts["cause_in_script"].format(
                    factory=script.qualified(made.call.func), owner=made.owner, use=made.used_by
                ),
                cure=translated("Create it on the input's device: {factory}(..., device={device})").format(
                    factory=script.qualified(made.call.func), device=device
                ),
                spans=(
                    script.place(made.call).span(),
                    script.place(made.use).span(translated("used here")) if made.use is not made.call else None,
                ),
                fixes=self.fix(translated("Create it on the input's device"), edit, safe=False)
                if edit is not None
                else None,
            )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Move what is passed to the engine to its device."""
        yield from move_batch_to_engine(record, run)

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch whose CPU operand is not a weight, judged by the operator's argument or the calling line."""
        for mismatch in device_mismatches_in_training(log):
            certainty = _judge_certainty(mismatch)
            if certainty is None:
                continue
            name = _input_name(mismatch)
            yield self.log_finding(
                mismatch.evidence,
                translated("{mismatch}. The tensor on the CPU is not a weight of the model, but {name}.").format(
                    mismatch=mismatch.sentence,
                    name=Text(f"an input or a tensor made on the way ({name})", f"输入或途中创建的张量（{name}）")
                    if name
                    else translated("an input or an intermediate tensor"),
                )
                if certainty is not Certainty.POSSIBLE
                else self.texts["cause_in_log"].format(mismatch=mismatch.sentence),
                cure=(
                    translated("Move the batch to the model before the forward: batch = {batch}").format(
                        batch="{k: v.to(model.device) for k, v in batch.items()}"
                    ),
                    self.texts["cure"],
                ),
                certainty=certainty,
                module=mismatch.module,
                confirm=self.texts["confirm"],
            )


def _judge_certainty(mismatch: LoggedDeviceMismatch) -> Certainty | None:
    if not mismatch.involves_cpu:
        return None
    if mismatch.outside_model:
        return None
    if mismatch.likely_tensor is MisplacedTensor.INPUT:
        caller = mismatch.caller
        if mismatch.cpu_operand == "ids" or caller is None or not is_library_path(caller.path):
            return Certainty.LIKELY
        return Certainty.LIKELY if mismatch.cpu_operand else Certainty.POSSIBLE
    # A bare line, or a line that uses an attribute of the user's own, does not decide.
    unclear = mismatch.likely_tensor is MisplacedTensor.UNKNOWN and (
        mismatch.has_only_devices or not mismatch.is_in_engine
    )
    own = (
        mismatch.likely_tensor is MisplacedTensor.BUFFER
        and mismatch.caller is not None
        and not is_model_code(mismatch.caller)
    )
    return Certainty.POSSIBLE if mismatch.devices and (unclear or own) else None


def _input_name(mismatch: LoggedDeviceMismatch) -> str | None:
    if mismatch.caller is not None and (found := _INPUT_NAME_PATTERN.search(mismatch.caller.code)):
        return found.group(1)
    return _INPUT_BY_OPERATOR_ARGUMENT.get(mismatch.argument or "") if mismatch.cpu_operand == "ids" else None


def _tensors_created_in_forward(script: Script, run: Run) -> Iterator[_CreatedTensor]:
    """The tensors that forwards create without a device, each once."""
    if b"def forward" in script.source.data and creates_tensors_on_cpu(script, run):
        yield from script.cached_result(_tensors_created_in_script)


def _tensors_created_in_script(script: Script) -> tuple[_CreatedTensor, ...]:
    """The tensors of one script."""
    return tuple(_tensors_created_by_modules(script))


def _tensors_created_by_modules(script: Script) -> Iterator[_CreatedTensor]:
    for owner in script.subclasses(*MODULES):
        forward = owner.methods.get("forward")
        if forward is None:
            continue
        layers = _layer_attributes(script, owner)
        inputs = _forward_input_names(forward)
        for call in (node for node in ast.walk(forward) if isinstance(node, ast.Call)):
            if script.enclosing_function(call) is not forward or find_tensor_factory_call(script, call) is not call:
                continue
            found = _find_computation_with(script, forward, call, layers, inputs)
            if found is not None:
                beside = next((name for name in inputs if _is_tensor(forward, name)), "")
                yield _CreatedTensor(owner.name, call, found[0], found[1], beside)


def _layer_attributes(script: Script, owner: ClassInfo) -> set[str]:
    """The attributes to which ``__init__`` assigns layers."""
    found: set[str] = set()
    made = owner.methods.get("__init__")
    for node in ast.walk(made) if made is not None else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Attribute) and script.qualified(node.value.func) in _LAYER_CLASSES:
                found.add(target.attr)
    return found


def _forward_input_names(forward: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    return tuple(argument.arg for argument in forward.args.args[1:])


def _is_tensor(forward: ast.AST, name: str) -> bool:
    """Whether an argument is used as only tensors are, and is never reassigned."""
    shown = False
    for node in ast.walk(forward):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return False
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name:
            shown = shown or node.attr in ("shape", "size", "device", "dtype", "view", "dim")
    return shown


def _find_computation_with(
    script: Script, forward: ast.AST, call: ast.Call, layers: set[str], inputs: tuple[str, ...]
) -> tuple[ast.AST, str] | None:
    """The node that computes with the tensor, and a shortened version of its code."""
    node: ast.AST = call
    parent = script.parent(node)
    while isinstance(parent, (ast.Attribute, ast.Call, ast.Subscript)) and not _is_call_argument(parent, node):
        if isinstance(parent, ast.Attribute) and parent.attr in ("to", "cuda", "type_as", "tolist", "item", "numpy"):
            return None
        node, parent = parent, script.parent(parent)
    direct = _find_layer_call(script, node, parent, layers, inputs)
    if direct is not None:
        return direct
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or not isinstance(parent.targets[0], ast.Name):
        return None
    name = parent.targets[0].id
    if is_moved_later(forward, name) or script.guarded_by(parent):
        return None
    stores = [one for one in ast.walk(forward) if isinstance(one, ast.Name) and one.id == name]
    if sum(isinstance(one.ctx, ast.Store) for one in stores) != 1:
        return None
    for one in stores:
        if isinstance(one.ctx, ast.Load):
            inner: ast.AST = one
            around = script.parent(inner)
            while isinstance(around, (ast.Attribute, ast.Call, ast.Subscript)) and not _is_call_argument(around, inner):
                if isinstance(around, ast.Attribute) and around.attr in ("shape", "size", "device"):
                    break
                inner, around = around, script.parent(around)
            found = _find_layer_call(script, inner, around, layers, inputs)
            if found is not None:
                return found
    return None


def _is_call_argument(parent: ast.AST, node: ast.AST) -> bool:
    if isinstance(parent, ast.Call):
        return node is not parent.func
    return isinstance(parent, ast.Subscript) and node is parent.slice


def _find_layer_call(
    script: Script, node: ast.AST, parent: ast.AST | None, layers: set[str], inputs: tuple[str, ...]
) -> tuple[ast.AST, str] | None:
    if isinstance(parent, ast.Call) and node in parent.args:
        func = parent.func
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self":
            return (parent, f"self.{func.attr}(...)") if func.attr in layers else None
    if isinstance(parent, (ast.List, ast.Tuple)):
        outer = script.parent(parent)
        joined = any(isinstance(other, ast.Name) and other.id in inputs for other in parent.elts)
        if isinstance(outer, ast.Call) and script.qualified(outer.func) in _JOINS and joined:
            return outer, f"{script.qualified(outer.func)}(...)"
    if isinstance(parent, ast.BinOp):
        other = parent.right if parent.left is node else parent.left
        if isinstance(other, ast.Name) and other.id in inputs and _looks_like_tensor(script, parent, other.id):
            return parent, script.place(parent).text.split("\n")[0][:60]
    return None


def _looks_like_tensor(script: Script, node: ast.AST, name: str) -> bool:
    function = script.enclosing_function(node)
    return function is not None and _is_tensor(function, name)
