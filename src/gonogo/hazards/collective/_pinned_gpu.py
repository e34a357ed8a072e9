"""Code that puts a DDP model on one GPU in every process: by a number, or by never choosing one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.hazards.facts.training_script import DDP, first_argument, mentions

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import Script
    from gonogo.finding import Edit

_LOCAL_RANK = 'int(os.environ["LOCAL_RANK"])'


def pinned_devices(script: Script) -> list[tuple[ast.AST, int]]:
    """The expressions that name one GPU for the model or the process, with its number, in the order of the file."""
    found: list[tuple[ast.AST, int]] = []
    for call in script.calls("torch.cuda.set_device"):
        node = first_argument(call, "device")
        number = _gpu(script, node)
        if node is not None and number is not None and not script.guarded_by(call.node):
            found.append((node, number))
    for call in script.calls(DDP):
        ids, model = call.keyword_node("device_ids"), first_argument(call, "module")
        if isinstance(ids, ast.List) and len(ids.elts) == 1 and (number := _gpu(script, ids.elts[0])) is not None:
            found.append((ids.elts[0], number))
        if isinstance(model, ast.Name):
            found += _moved_to(script, model.id)
    return sorted(set(found), key=lambda pin: (pin[0].lineno, pin[0].col_offset))  # type: ignore[attr-defined]


def _moved_to(script: Script, name: str) -> Iterator[tuple[ast.AST, int]]:
    for node in _moves(script, name):
        if node.args and (number := _gpu(script, node.args[0])) is not None and not script.guarded_by(node):
            yield node.args[0], number


def _moves(script: Script, name: str | None = None) -> Iterator[ast.Call]:
    """The calls of ``to`` and ``cuda`` on what goes by a name, or is made for it."""
    for node in script.index.calls:
        func = node.func
        if not isinstance(func, ast.Attribute) or func.attr not in ("to", "cuda"):
            continue
        statement = script.statement(node)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        own = isinstance(func.value, ast.Name) and func.value.id == name
        if own or any(isinstance(target, ast.Name) and target.id == name for target in targets):
            yield node


def _gpu(script: Script, node: ast.expr | None) -> int | None:
    """The number of the GPU that a constant names."""
    if isinstance(node, ast.Call) and script.qualified(node.func) == "torch.device" and len(node.args) == 1:
        node = node.args[0]
    if not isinstance(node, ast.Constant):
        return None
    value = node.value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = value.removeprefix("cuda:") if isinstance(value, str) and value.startswith("cuda:") else ""
    return int(text) if text.isdigit() else None


def bare(script: Script) -> list[ast.Call]:
    """The moves of DDP's models to the current GPU, whichever that is."""
    found: list[ast.Call] = []
    for call in script.calls(DDP):
        model = first_argument(call, "module")
        moves = (
            [model] if isinstance(model, ast.Call) else _moves(script, model.id) if isinstance(model, ast.Name) else []
        )
        for node in moves:
            func = node.func
            if not isinstance(func, ast.Attribute):
                continue
            current = not node.args and not node.keywords if func.attr == "cuda" else func.attr == "to"
            if current and (func.attr == "cuda" or (node.args and _is_cuda(node.args[0]))):
                found.append(node)
    return found


def _is_cuda(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "cuda"


def never_set(script: Script, run: Run) -> bool:
    """Whether no process of the run chooses a GPU in any way that is known."""
    return not mentions(run, script, b"set_device", b"cuda.device(", b"device_id", b"default_device", b"local_rank)")


def replacing_pins(script: Script, pinned: list[tuple[ast.AST, int]]) -> tuple[Edit, ...]:
    """Edits that put the local rank in the place of each number; none where the script names the GPU elsewhere too."""
    words = sum(script.source.data.count(word) for word in (b'"cuda:', b"'cuda:", b".cuda(0)"))
    own = sum(script.place(node).text.startswith(("'cuda:", '"cuda:', "torch.device(")) for node, _ in pinned)
    cuda = sum(script.source.data[script.place(node).start - 6 :].startswith(b".cuda(") for node, _ in pinned)
    if words > own + cuda:
        return ()
    edits = [script.replacing(node, _LOCAL_RANK) for node, _ in pinned]
    return _with_import(script, edits)


def setting_device(script: Script) -> tuple[Edit, ...]:
    """Edits that choose the GPU of the local rank right after the process group is made."""
    for call in script.calls("torch.distributed.init_process_group"):
        statement = script.statement(call.node)
        if statement is not None:
            return _with_import(script, [script.inserting_after(statement, f"torch.cuda.set_device({_LOCAL_RANK})")])
    return ()


def _with_import(script: Script, edits: list[Edit | None]) -> tuple[Edit, ...]:
    if not script.imports("os"):
        edits.insert(0, script.inserting_import("import os"))
    return tuple(edit for edit in edits if edit is not None) if all(edit is not None for edit in edits) else ()
