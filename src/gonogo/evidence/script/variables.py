"""The environment variables that a script sets itself: ``os.environ["NCCL_P2P_DISABLE"] = "1"``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from gonogo.evidence.field import Field
from gonogo.evidence.script.script import Script


class EnvironmentSetting(msgspec.Struct, frozen=True, eq=False):
    """One variable that a script sets; ``default`` where a value from outside wins (``setdefault``)."""

    name: str
    value: Field
    node: ast.AST
    statement: ast.stmt | None
    default: bool = False


def environment_settings(script: Script) -> tuple[EnvironmentSetting, ...]:
    """What a script sets, in its order; a variable whose name isn't known is left out."""
    found = [*_assigned_variables(script), *_variables_set_by_calls(script)]
    return tuple(sorted(found, key=lambda setting: script.place(setting.node).start))


def _assigned_variables(script: Script) -> Iterator[EnvironmentSetting]:
    for node in script.nodes(ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and script.qualified(target.value) == "os.environ":
                name = script.field(target.slice).string
                if name is not None:
                    yield EnvironmentSetting(name, script.field(node.value), node, node)


def _variables_set_by_calls(script: Script) -> Iterator[EnvironmentSetting]:
    for call in script.calls("os.environ.setdefault", "os.putenv"):
        name = call.argument(0).string
        if name is not None:
            default = call.name == "os.environ.setdefault"
            yield EnvironmentSetting(name, call.argument(1), call.node, script.statement(call.node), default)
    for call in script.calls("os.environ.update"):
        first = call.node.args[0] if call.node.args else None
        pairs: list[tuple[str | None, ast.expr]] = [(each.arg, each.value) for each in call.node.keywords]
        if isinstance(first, ast.Dict):
            for key, value in zip(first.keys, first.values, strict=True):
                pairs.append((script.field(key).string if key is not None else None, value))
        for name, value in pairs:
            if name is not None:
                yield EnvironmentSetting(name, script.field(value), value, script.statement(call.node))
