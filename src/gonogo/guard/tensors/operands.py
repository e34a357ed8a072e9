"""Describes the tensors of the expression that failed, and their ZeRO state, by names and shapes, never by values."""

from __future__ import annotations

import ast
import linecache
import os
import textwrap
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from gonogo.evidence.guarded.records import ZeroState
from gonogo.evidence.rehearsal.record import Operand
from gonogo.guard.common.frames import code_owner
from gonogo.guard.tensors.modules import Names
from gonogo.virtual.frame_variables import local_variable, local_variables

_MAX_OPERANDS = 16


def failure_operands(traceback: TracebackType | None, names: Names) -> tuple[Operand, ...]:
    """The tensors used at the point of failure in the innermost frame that has any."""
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    computing = [entry for entry in entries if _is_relevant_file(entry.tb_frame.f_code.co_filename)]
    for entry in reversed(computing[-12:]):
        found: dict[str, Any] = {}
        for name, value in _candidate_values(entry):
            _collect_tensors(name, value, found)
        if found:
            return tuple(_to_operand(name, value, names) for name, value in list(found.items())[:_MAX_OPERANDS])
    return ()


def _is_relevant_file(path: str) -> bool:
    """Whether a file's tensors help to explain a failure: of torch's own files, only those of ``torch.nn``."""
    return code_owner(path) != "torch" or f"torch{os.sep}nn{os.sep}" in path


def _candidate_values(entry: TracebackType) -> Iterator[tuple[str, Any]]:
    """(source text, value) of each part of the failing expression; if that can't be read, of all local variables."""
    frame = entry.tb_frame
    tree = _failing_expression(entry)
    read = list(_evaluate_operands(tree, frame)) if tree is not None else []
    yield from read or ((name, value) for name, value in local_variables(frame).items() if not name.startswith("__"))


def _failing_expression(entry: TracebackType) -> ast.AST | None:
    code, line = entry.tb_frame.f_code, entry.tb_lineno
    last = line
    if hasattr(code, "co_positions"):  # from Python 3.11
        positions = list(code.co_positions())
        first, end, _, _ = positions[entry.tb_lasti // 2] if entry.tb_lasti // 2 < len(positions) else (None,) * 4
        if first and end:
            line, last = first, end
    # The position may be that of a part of the statement, which does not parse by itself.
    for start, stop in ((line, last), (line, line), (line, last + 1), (line, last + 3)):
        text = "".join(linecache.getline(code.co_filename, number) for number in range(start, stop + 1))
        text = textwrap.dedent(text).strip()
        for attempt in (text, f"{text}\n    pass"):
            if (tree := _parse_expression(attempt)) is not None:
                return tree
    return None


def _parse_expression(text: str) -> ast.AST | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _evaluate_operands(tree: ast.AST, frame: FrameType) -> Iterator[tuple[str, Any]]:
    owners: set[int] = set()
    for node in ast.walk(tree):  # ast.walk: outer expressions come first
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load):
            written, value = _evaluate(node, frame)
            if value is None and id(node) not in owners:
                continue
            if not isinstance(node, ast.Name):
                owners.add(id(node.value))  # `layer` in `layer.weight`: only the weight was computed with
            if value is not None and id(node) not in owners:
                yield written, value


def _evaluate(node: ast.expr, frame: FrameType) -> tuple[str, Any]:
    """(source text, value) of an expression, without running any of the program's code."""
    if isinstance(node, ast.Name):
        return node.id, local_variable(frame, node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        written, owner = _evaluate(node.value, frame)
        return f"{written}.{node.attr}", _own_attribute(owner, node.attr)
    if isinstance(node, ast.Subscript):
        written, owner = _evaluate(node.value, frame)
        key = node.slice.value if isinstance(node.slice, ast.Constant) else _evaluate(node.slice, frame)[1]
        return f"{written}[{ast.unparse(node.slice)}]", _get_item(owner, key)
    return "", None


def _get_item(owner: Any, key: Any) -> Any:
    held = getattr(owner, "__dict__", {}).get("_modules") if not isinstance(owner, list | tuple | dict) else owner
    if isinstance(held, list | tuple):
        return held[key] if isinstance(key, int) and -len(held) <= key < len(held) else None
    if isinstance(held, dict) and isinstance(key, int | str):
        return held.get(key, held.get(str(key)))
    return None


def _own_attribute(owner: Any, name: str) -> Any:
    own = getattr(owner, "__dict__", None)
    if not isinstance(own, dict):
        return None
    if name in own:
        return own[name]
    for registry in ("_parameters", "_buffers", "_modules"):
        held = own.get(registry)
        if held is not None and name in held:
            return held[name]
    return None


def _collect_tensors(name: str, value: Any, tensors: dict[str, Any], depth: int = 0) -> None:
    """Tensors in a value: itself, in a list or dictionary, or the parameters and buffers of a module."""
    import torch

    if len(tensors) >= _MAX_OPERANDS or any(value is known for known in tensors.values()):
        return
    if isinstance(value, torch.Tensor):
        tensors[name] = value
    elif isinstance(value, torch.nn.Module):
        # Only a module without children: one with children would add too many tensors.
        if not value._modules:
            for inner, tensor in (*value._parameters.items(), *value._buffers.items()):
                if tensor is not None:
                    _collect_tensors(f"{name}.{inner}", tensor, tensors, depth + 1)
    elif isinstance(value, list | tuple) and depth < 2:
        for index, one in enumerate(value[:8]):
            _collect_tensors(f"{name}[{index}]", one, tensors, depth + 1)
    elif isinstance(value, dict) and depth < 2:
        for key, one in list(value.items())[:8]:
            _collect_tensors(f"{name}[{key!r}]", one, tensors, depth + 1)


def _to_operand(name: str, tensor: Any, names: Names) -> Operand:
    owner, kind = names.tensor_name_and_kind(tensor)
    return Operand(
        name=name,
        device=str(tensor.device),
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        parameter=owner,
        kind=kind,
    )


def zero_state(name: str, parameter: Any) -> ZeroState | None:
    """The ZeRO-3 state of a parameter; None if ZeRO-3 does not manage it."""
    status = getattr(parameter, "ds_status", None)
    if status is None:
        return None
    partition = getattr(parameter, "ds_tensor", None)
    return ZeroState(
        parameter=name,
        status=str(getattr(status, "name", status)),
        shape=tuple(getattr(parameter, "ds_shape", ())),
        partition_device=str(partition.device) if partition is not None else "",
        partition_elements=int(partition.numel()) if partition is not None else 0,
    )
