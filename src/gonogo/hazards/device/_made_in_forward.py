"""Tensors that a module's ``forward`` makes on the CPU and gives to its layers, or computes with beside its inputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from gonogo.hazards.device._plain_tensors import MODULES, factory, moved_later, on_accelerator

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import ClassInfo, Script

_JOINS = ("torch.cat", "torch.concat", "torch.stack", "torch.where")
_LAYERS = ("torch.nn.Embedding", "torch.nn.Linear", "torch.nn.LayerNorm")


class Made(msgspec.Struct, frozen=True, eq=False):
    """One such tensor. ``beside`` is an input of the forward that is surely a tensor; empty where none is."""

    owner: str
    call: ast.Call
    use: ast.AST
    used_by: str
    beside: str


def made_in_forward(script: Script, run: Run) -> Iterator[Made]:
    """The tensors that forwards make without a device, each once."""
    if b"def forward" not in script.source.data or not on_accelerator(script, run):
        return
    for owner in script.subclasses(*MODULES):
        forward = owner.methods.get("forward")
        if forward is None:
            continue
        layers = _layers(script, owner)
        inputs = _inputs(forward)
        for call in (node for node in ast.walk(forward) if isinstance(node, ast.Call)):
            if script.enclosing_function(call) is not forward or factory(script, call) is not call:
                continue
            found = _met(script, forward, call, layers, inputs)
            if found is not None:
                beside = next((name for name in inputs if _is_tensor(forward, name)), "")
                yield Made(owner.name, call, found[0], found[1], beside)


def _layers(script: Script, owner: ClassInfo) -> set[str]:
    """The attributes that ``__init__`` makes layers."""
    found: set[str] = set()
    made = owner.methods.get("__init__")
    for node in ast.walk(made) if made is not None else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Attribute) and script.qualified(node.value.func) in _LAYERS:
                found.add(target.attr)
    return found


def _inputs(forward: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    return tuple(argument.arg for argument in forward.args.args[1:])


def _is_tensor(forward: ast.AST, name: str) -> bool:
    """Whether an argument is used as only tensors are, and is never given anew."""
    shown = False
    for node in ast.walk(forward):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return False
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name:
            shown = shown or node.attr in ("shape", "size", "device", "dtype", "view", "dim")
    return shown


def _met(
    script: Script, forward: ast.AST, call: ast.Call, layers: set[str], inputs: tuple[str, ...]
) -> tuple[ast.AST, str] | None:
    """What computes with the tensor: the node, and its code in short."""
    node: ast.AST = call
    parent = script.parent(node)
    while isinstance(parent, (ast.Attribute, ast.Call, ast.Subscript)) and not _is_argument(parent, node):
        if isinstance(parent, ast.Attribute) and parent.attr in ("to", "cuda", "type_as", "tolist", "item", "numpy"):
            return None
        node, parent = parent, script.parent(parent)
    direct = _use(script, node, parent, layers, inputs)
    if direct is not None:
        return direct
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or not isinstance(parent.targets[0], ast.Name):
        return None
    name = parent.targets[0].id
    if moved_later(forward, name) or script.guarded_by(parent):
        return None
    stores = [one for one in ast.walk(forward) if isinstance(one, ast.Name) and one.id == name]
    if sum(isinstance(one.ctx, ast.Store) for one in stores) != 1:
        return None
    for one in stores:
        if isinstance(one.ctx, ast.Load):
            inner: ast.AST = one
            around = script.parent(inner)
            while isinstance(around, (ast.Attribute, ast.Call, ast.Subscript)) and not _is_argument(around, inner):
                if isinstance(around, ast.Attribute) and around.attr in ("shape", "size", "device"):
                    break
                inner, around = around, script.parent(around)
            found = _use(script, inner, around, layers, inputs)
            if found is not None:
                return found
    return None


def _is_argument(parent: ast.AST, node: ast.AST) -> bool:
    if isinstance(parent, ast.Call):
        return node is not parent.func
    return isinstance(parent, ast.Subscript) and node is parent.slice


def _use(
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
