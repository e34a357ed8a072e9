"""What a script puts on ``sys.path`` itself, where its text shows the folder."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence

from gonogo.evidence.script.index import Index


def added_paths(index: Index, path: str) -> list[str]:
    """The folders that a script in the file at ``path`` puts on ``sys.path`` itself, where its text shows them."""
    reader = _Reader(index, path)
    found = []
    for call in index.calls:
        func = call.func
        if not (isinstance(func, ast.Attribute) and func.attr in ("insert", "append") and call.args):
            continue
        base = func.value
        if isinstance(base, ast.Attribute) and base.attr == "path" and isinstance(base.value, ast.Name):
            if base.value.id != "sys":
                continue
            folder = reader.folder(call.args[-1], 0)
            if folder is not None:
                found.append(os.path.realpath(os.path.join(os.path.dirname(path), folder)))
    return found


class _Reader:
    """Works out paths made of constants and of the script's own place."""

    def __init__(self, index: Index, path: str) -> None:
        self.index = index
        self.path = path

    def folder(self, node: ast.AST, depth: int) -> str | None:
        """A path made of constants, ``__file__``, ``os.path`` functions and ``Path(...).parent``."""
        if depth > 20:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) and "\0" not in node.value else None
        if isinstance(node, ast.Name):
            if node.id == "__file__":
                return self.path
            bindings = self.index.module.names.get(node.id, [])
            only = bindings[0] if len(bindings) == 1 else None
            return self.folder(only.value, depth + 1) if only is not None and only.kind == "assign" else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._joined([node.left, node.right], depth)
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            inner = self.folder(node.value, depth + 1)
            return os.path.dirname(inner) if inner is not None else None
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
            inner = self.folder(node.value.value, depth + 1)
            levels = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if inner is None or not isinstance(levels, int) or not 0 <= levels < 20:
                return None
            for _ in range(levels + 1):
                inner = os.path.dirname(inner)
            return inner
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name == "dirname" and node.args:
                inner = self.folder(node.args[0], depth + 1)
                return os.path.dirname(inner) if inner is not None else None
            if name == "join":
                return self._joined(node.args, depth)
            if name in ("abspath", "realpath", "str", "Path", "normpath", "fspath") and len(node.args) == 1:
                return self.folder(node.args[0], depth + 1)
            if name in ("resolve", "absolute", "as_posix") and isinstance(node.func, ast.Attribute):
                return self.folder(node.func.value, depth + 1)
            if name == "getcwd":
                return ""
        return None

    def _joined(self, nodes: Sequence[ast.AST], depth: int) -> str | None:
        parts = [self.folder(each, depth + 1) for each in nodes]
        known = [part for part in parts if part is not None]
        return os.path.join(*known) if known and len(known) == len(parts) else None
