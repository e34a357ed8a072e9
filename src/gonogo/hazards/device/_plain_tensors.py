"""Finds CPU tensors that a module keeps as attributes or creates in its forward: they don't move with the module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from gonogo.finding import Certainty, Finding, Text, translated
from gonogo.hazards.facts.training_script import run_mentions

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import ClassInfo, Script
    from gonogo.finding import Edit
    from gonogo.hazards.hazard import Hazard

MODULES = ("torch.nn.Module", "transformers.*PreTrainedModel")
"""The classes that own parameters and buffers."""
FACTORIES = frozenset(
    f"torch.{name}"
    for name in (
        *("arange", "zeros", "ones", "linspace", "randn", "rand", "eye", "full", "tensor", "from_numpy", "as_tensor"),
        *("FloatTensor", "LongTensor", "randint", "logspace", "empty"),
    )
)
"""Functions that create a tensor on the default device unless one is given."""
_MOVING_METHODS = frozenset(("to", "cuda", "type_as", "to_device", "npu", "xpu"))
_DEVICE_INDEPENDENT_ATTRIBUTES = frozenset(
    ("shape", "device", "dtype", "size", "dim", "ndim", "numel", "item", "tolist", "data_ptr", "is_cuda")
)
_COMBINING_FUNCTIONS = frozenset(f"torch.{name}" for name in ("einsum", "outer", "matmul", "mul", "add", "bmm", "cat"))
# Code that puts tensors on another device than their calls say.
_DEVICE_OVERRIDES = (
    b"set_default_device",
    b"set_default_tensor_type",
    b"with torch.device(",
    b"def _apply",
    b"def cuda",
)
_ACCELERATOR_MARKERS = (
    *(b"cuda", b"Trainer", b"accelerate", b"deepspeed", b"DistributedDataParallel", b".to(device", b".npu("),
    b"FullyShardedDataParallel",
)
ROTARY = ("cos", "sin", "freq", "rope", "rotary")
"""Parts of the names of rotary tables."""


class PlainTensorAttribute(msgspec.Struct, frozen=True, eq=False):
    """A tensor that ``__init__`` creates on the CPU, keeps as a plain attribute, and that a method computes with."""

    owner: ClassInfo
    name: str
    statement: ast.Assign
    use: ast.Attribute
    method: str

    @property
    def is_rotary(self) -> bool:
        """Whether it is a rotary embedding's table, by its name or its class's."""
        return any(word in self.name.lower() for word in ROTARY) or "rotary" in self.owner.name.lower()

    def register_as_buffer_edit(self) -> Edit | None:
        """An edit that registers it as a buffer, which moves with the module."""
        script = self.owner.script
        value = script.place(self.statement.value).text
        return script.replacing(self.statement, f'self.register_buffer("{self.name}", {value}, persistent=False)')


def plain_tensor_finding(hazard: Hazard, tensor: PlainTensorAttribute) -> Finding:
    """The finding about such a tensor; ``hazard`` is the rotary one for rotary tables, or the general one."""
    script, edit = tensor.owner.script, tensor.register_as_buffer_edit()
    return hazard.finding(
        Text(
            f"self.{tensor.name} of {tensor.owner.name} is made on the CPU and is neither a buffer nor a parameter: it "
            f"stays there when the module moves, and {tensor.method} computes with it.",
            f"{tensor.owner.name} 的 self.{tensor.name} 在 CPU 上创建，既不是 buffer 也不是参数：模块移动时它留在原处，"
            f"而 {tensor.method} 用它计算。",
        ),
        certainty=Certainty.LIKELY,
        cure=(
            Text(
                f'In __init__: self.register_buffer("{tensor.name}", ..., persistent=False)',
                f'在 __init__ 中：self.register_buffer("{tensor.name}", ..., persistent=False)',
            ),
            Text(
                f"Or move it where it is used: self.{tensor.name}.to(x.device)",
                f"或在使用处搬运：self.{tensor.name}.to(x.device)",
            ),
        ),
        spans=(script.place(tensor.statement).span(), script.place(tensor.use).span(translated("used here"))),
        fixes=hazard.fix(translated("Register the tensor as a buffer"), edit, safe=False) if edit else None,
    )


def plain_tensors_on_cpu(script: Script, run: Run) -> Iterator[PlainTensorAttribute]:
    """Plain tensor attributes that a module's own methods compute with, if the run uses an accelerator."""
    if creates_tensors_on_cpu(script, run):
        yield from script.cached_result(_plain_tensors_in_script)


def _plain_tensors_in_script(script: Script) -> tuple[PlainTensorAttribute, ...]:
    """The plain tensors of one script."""
    data = script.source.data
    return tuple(_plain_tensors_of_modules(script)) if b"__init__" in data and b"forward" in data else ()


def _plain_tensors_of_modules(script: Script) -> Iterator[PlainTensorAttribute]:
    for owner in script.subclasses(*MODULES):
        made = owner.methods.get("__init__")
        if made is None or "forward" not in owner.methods:
            continue
        assigned: dict[str, list[ast.Assign]] = {}
        for node in ast.walk(owner.node):
            if (
                isinstance(node, ast.Assign)
                and len(node.targets) == 1
                and (name := _self_attribute_name(node.targets[0]))
            ):
                assigned.setdefault(name, []).append(node)
        for name, statements in assigned.items():
            statement = statements[0]
            if len(statements) != 1 or script.enclosing_function(statement) is not made:
                continue
            if script.guarded_by(statement) or not _is_cpu_tensor(script, statement.value):
                continue
            use = _find_use_in_computation(script, owner, name)
            if use is not None:
                yield PlainTensorAttribute(owner, name, statement, *use)


def creates_tensors_on_cpu(script: Script, run: Run) -> bool:
    """Whether the run uses an accelerator, but tensors without a device are created on the CPU."""
    if any(word in script.source.data for word in _DEVICE_OVERRIDES) or _uses_only_cpu(run):
        return False
    return run_mentions(run, script, *_ACCELERATOR_MARKERS)


def _uses_only_cpu(run: Run) -> bool:
    """Whether the program names the CPU as its device and nothing else, as one that exports a model does."""
    if not run.scripts or b"cpu" not in run.scripts[0].source.data:
        return False
    entry = run.scripts[0]
    if any(word in entry.source.data for word in _ACCELERATOR_MARKERS if word != b".to(device"):
        return False
    return any(call.argument(0).string == "cpu" for call in entry.calls("torch.device"))


def _self_attribute_name(node: ast.AST) -> str | None:
    """``x`` if a node is ``self.x``, else None."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return None


def find_tensor_factory_call(script: Script, node: ast.AST) -> ast.Call | None:
    """The call that creates the tensor on the default device, found through methods and arithmetic, or None."""
    if isinstance(node, ast.Call):
        name = script.qualified(node.func)
        if name in FACTORIES:
            if any(keyword.arg in (None, "device") for keyword in node.keywords):
                return None
            scalar = name in ("torch.tensor", "torch.as_tensor") and isinstance(
                node.args[0] if node.args else None, _NUMBER_NODES
            )
            copied = name == "torch.as_tensor"
            return None if scalar or copied else node
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr not in _MOVING_METHODS | _DEVICE_INDEPENDENT_ATTRIBUTES
        ):
            return find_tensor_factory_call(script, node.func.value)
        return None
    if isinstance(node, ast.BinOp):
        left, right = find_tensor_factory_call(script, node.left), find_tensor_factory_call(script, node.right)
        plain = (ast.Constant, ast.Name, ast.UnaryOp)
        if left is not None and (right is not None or isinstance(node.right, plain)):
            return left
        return right if right is not None and isinstance(node.left, plain) else None
    return find_tensor_factory_call(script, node.value) if isinstance(node, ast.Subscript) else None


_NUMBER_NODES = (ast.Constant, ast.UnaryOp, ast.Name, ast.Attribute, ast.Call, ast.BinOp)


def _is_cpu_tensor(script: Script, node: ast.expr) -> bool:
    if find_tensor_factory_call(script, node) is None:
        return False
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in ("device", "Parameter", "item", "tolist"):
            return False
        if isinstance(part, ast.keyword) and part.arg == "device":
            return False
    return True


def _find_use_in_computation(script: Script, owner: ClassInfo, name: str) -> tuple[ast.Attribute, str] | None:
    """Where a method other than ``__init__`` computes with ``self.name``; None if any method moves it."""
    found: tuple[ast.Attribute, str] | None = None
    for method, function in owner.methods.items():
        for node in ast.walk(function):
            if not isinstance(node, ast.Attribute) or _self_attribute_name(node) != name:
                continue
            if not isinstance(node.ctx, ast.Load):
                continue  # the only assignment, in __init__
            if _is_moved(script, node):
                return None
            if method != "__init__" and found is None and _is_operand_with_tensor(script, node):
                found = (node, method)
    # What holds the module may move its tensor: model.x = model.x.cuda().
    text = script.source.data
    moved = any(f".{name} = ".encode() in line and b"self." + name.encode() not in line for line in text.split(b"\n"))
    return None if moved or f'"{name}"'.encode() in text or f"'{name}'".encode() in text else found


def _is_moved(script: Script, node: ast.AST) -> bool:
    """Whether ``.to(…)`` or the like is called on a node, possibly after indexing."""
    parent = script.parent(node)
    while isinstance(parent, (ast.Subscript, ast.Attribute, ast.Call)):
        if isinstance(parent, ast.Attribute):
            if parent.attr in _MOVING_METHODS:
                return True
        elif isinstance(parent, ast.Subscript):
            if node is parent.slice:
                return False
        elif node is not parent.func:
            return False
        node, parent = parent, script.parent(parent)
    # x = self.table[:n]; x = x.to(device) moves it a line later.
    if isinstance(parent, (ast.Assign, ast.Tuple, ast.Return, ast.keyword)):
        return not isinstance(parent, ast.Return) and _name_is_moved(script, parent)
    return False


def _name_is_moved(script: Script, node: ast.AST) -> bool:
    statement = script.statement(node)
    function = script.enclosing_function(node)
    if not isinstance(statement, ast.Assign) or function is None:
        return True
    return True if not isinstance(statement.targets[0], ast.Name) else is_moved_later(function, statement.targets[0].id)


def is_moved_later(function: ast.AST, name: str) -> bool:
    """Whether a function moves a local tensor somewhere."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr in _MOVING_METHODS:
            inner: ast.AST = node.value
            while isinstance(inner, (ast.Subscript, ast.Attribute, ast.Call)):
                inner = inner.func if isinstance(inner, ast.Call) else inner.value
            if isinstance(inner, ast.Name) and inner.id == name:
                return True
    return False


def _is_operand_with_tensor(script: Script, node: ast.AST) -> bool:
    """Whether a node is an operand together with a non-number, or an argument of one of the module's layers."""
    parent = script.parent(node)
    while (isinstance(parent, ast.Subscript) and node is parent.value) or (
        isinstance(parent, ast.Attribute) and parent.attr in ("T", "data", "unsqueeze", "view", "expand", "repeat")
    ):
        node, parent = parent, script.parent(parent)
        if isinstance(parent, ast.Call) and node is parent.func:
            node, parent = parent, script.parent(parent)
    if isinstance(parent, ast.Call) and script.qualified(parent.func) in _COMBINING_FUNCTIONS:
        return any(isinstance(other, ast.Name) for other in parent.args if other is not node)
    if isinstance(parent, ast.BinOp):
        other = parent.right if parent.left is node else parent.left
        return any(isinstance(part, ast.Name) and part.id != "self" for part in ast.walk(other)) and not isinstance(
            other, ast.Subscript
        )
    return False
