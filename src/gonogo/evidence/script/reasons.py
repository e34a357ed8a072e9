"""What an expression of a script comes to, or why that can't be told from the files."""

from __future__ import annotations

import ast
from typing import Any

import msgspec

from gonogo.evidence.script.names import dotted
from gonogo.finding import Text

_SHOWN = 80


class Value(msgspec.Struct, frozen=True):
    """What an expression comes to, or why that can't be told."""

    value: Any = None
    known: bool = True
    reason: Text | None = None


def computed(node: ast.AST) -> Value:
    """Unknown, since only a run works it out."""
    return Value(known=False, reason=COMPUTED.format(text=text_of(node)))


def text_of(node: ast.AST) -> str:
    """An expression in short; no whole unparsing, which recurses as deep as the expression."""
    if isinstance(node, ast.Call):
        return f"{text_of(node.func)}(...)"
    if isinstance(node, ast.Subscript):
        return f"{dotted(node.value) or '...'}[...]"
    return (dotted(node) or type(node).__name__)[:_SHOWN]


UNDEFINED = Text("{name} is not defined in this file", "{name} 不是在这个文件中定义的")
COMPUTED = Text("it is computed when the script runs: {text}", "其值在脚本运行时才计算：{text}")
SEVERAL = Text("{name} gets more than one value", "{name} 被赋予了多个值")
CHANGED = Text("the script changes {name} after making it", "脚本在创建 {name} 之后又修改了它")
PARAMETER = Text("{name} is a parameter of {function}", "{name} 是 {function} 的参数")
OPTION = Text("{text} comes from the command line (--{option})", "{text} 来自命令行（--{option}）")
ENVIRONMENT = Text("the environment variable {name} decides it", "由环境变量 {name} 决定")
