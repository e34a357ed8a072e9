"""Edits of a YAML file that leave all other bytes unchanged: comments, indentation, line endings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from gonogo.evidence.document.tree import TreeNode
from gonogo.evidence.document.yaml_scalars import parse_yaml_scalar
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Edit

_INDENT = 2


class MappingLayout(msgspec.Struct, frozen=True):
    """Where a YAML mapping and its entries begin and end, as needed for edits."""

    flow: bool
    start: int
    end: int
    """The offset after the closing brace of a flow mapping, otherwise after the last value."""
    entries: tuple[tuple[str, int, int, int], ...]
    """The key, the offset of the key's start, of the value's start and of the value's end, for each entry."""


class YamlEditor:
    """Makes edits of one YAML file. Each method raises KeyError for keys that have no place of their own in it."""

    def __init__(self, source: SourceFile, root: TreeNode, layouts: Mapping[int, MappingLayout]) -> None:
        self._source = source
        self._root = root
        self._layouts = layouts
        """By the ``id()`` of the mapping's node."""

    def replacing(self, keys: tuple[str, ...], value: Any) -> Edit:
        """An edit that replaces the value under the keys."""
        layout, index = self._find_entry(keys)
        _name, _key, start, end = layout.entries[index]
        node = self._root.find(keys)
        place = node.field.place if node is not None and node.field.value is None else None
        if place is not None and place.start == place.end:  # `key:` without a value
            at = self._after_colon(layout.entries[index][1])
            return Place(self._source, at, at).edit(f" {to_inline_yaml(value)}")
        return Place(self._source, start, end).edit(to_inline_yaml(value))

    def removing(self, keys: tuple[str, ...]) -> Edit:
        """An edit that removes the key with its value, and its line if nothing else is on it."""
        layout, index = self._find_entry(keys)
        data = self._source.data
        _name, start, _value, end = layout.entries[index]
        if layout.flow:
            if index + 1 < len(layout.entries):
                return Place(self._source, start, layout.entries[index + 1][1]).edit("")
            if index > 0:
                return Place(self._source, layout.entries[index - 1][3], end).edit("")
            return Place(self._source, start, end).edit("")
        first = self._line_start(start)
        if len(layout.entries) == 1 and len(keys) > 1 and not data[first:start].strip():
            # The last entry of a nested mapping: `key:` alone would be null, so an empty mapping is left.
            return Place(self._source, start, end).edit("{}")
        if data[first:start].strip():  # after the dash of a list item
            if index + 1 < len(layout.entries):
                return Place(self._source, start, layout.entries[index + 1][1]).edit("")
            return Place(self._source, start, end).edit("{}")
        line_end = data.find(b"\n", max(end - 1, start))
        rest = data[end:line_end] if line_end >= 0 else data[end:]
        if rest.strip() and not rest.lstrip().startswith(b"#"):
            return Place(self._source, start, end).edit("")
        return Place(self._source, first, line_end + 1 if line_end >= 0 else len(data)).edit("")

    def inserting(self, keys: tuple[str, ...], value: Any) -> Edit:
        """An edit that sets the value of the keys, as a new last entry of the innermost existing mapping."""
        if self._root.find(keys) is not None:
            return self.replacing(keys, value)
        depth = len(keys) - 1
        while depth and self._layout_of(self._root.find(keys[:depth])) is None:
            if self._root.find(keys[:depth]) is not None:
                inner: Any = value
                for key in reversed(keys[depth:]):
                    inner = {key: inner}
                return self.replacing(keys[:depth], inner)
            depth -= 1
        node = self._root.find(keys[:depth])
        layout = self._layout_of(node)
        rest = keys[depth:]
        if layout is None or not layout.entries:
            if layout is not None and layout.flow:
                return Place(self._source, layout.end - 1, layout.end - 1).edit(_flow_entry(rest, value))
            return self._append_to_document(rest, value)
        if layout.flow:
            at = layout.entries[-1][3]
            return Place(self._source, at, at).edit(f", {_flow_entry(rest, value)}")
        last = layout.entries[-1]
        column = last[1] - self._line_start(last[1])
        blanks = " " * len(self._source.data[last[1] - column : last[1]].decode("utf-8", "replace"))
        ending = self._line_ending()
        at = self._line_end(last[3])
        block = ending.join(_block_lines(rest, value, blanks))
        return Place(self._source, at, at).edit(f"{ending}{block}")

    def _find_entry(self, keys: tuple[str, ...]) -> tuple[MappingLayout, int]:
        layout = self._layout_of(self._root.find(keys[:-1])) if keys else None
        if layout is None:
            raise KeyError(".".join(keys))
        for index in range(len(layout.entries) - 1, -1, -1):
            if layout.entries[index][0] == keys[-1]:
                return layout, index
        raise KeyError(".".join(keys))

    def _layout_of(self, node: TreeNode | None) -> MappingLayout | None:
        return self._layouts.get(id(node))

    def _append_to_document(self, keys: tuple[str, ...], value: Any) -> Edit:
        data = self._source.data
        ending = self._line_ending()
        before = "" if not data[self._source.start :] or data.endswith(b"\n") else ending
        block = ending.join(_block_lines(keys, value, ""))
        return Place(self._source, len(data), len(data)).edit(f"{before}{block}{ending}")

    def _after_colon(self, key_start: int) -> int:
        """The offset after the colon of a key that starts at ``key_start``."""
        colon = self._source.data.find(b":", key_start)
        return colon + 1 if colon >= 0 else key_start

    def _line_start(self, offset: int) -> int:
        return self._source.line_start(self._source.line_of(offset))

    def _line_end(self, offset: int) -> int:
        """The end of a value's line, before the line ending."""
        data = self._source.data
        if offset > 0 and data[offset - 1 : offset] == b"\n":
            offset -= 1
        end = data.find(b"\n", offset)
        end = end if end >= 0 else len(data)
        return end - 1 if end > 0 and data[end - 1 : end] == b"\r" else end

    def _line_ending(self) -> str:
        return "\r\n" if b"\r\n" in self._source.data else "\n"


def _flow_entry(keys: tuple[str, ...], value: Any) -> str:
    """Nested keys with a value as an entry of a flow mapping (``{…}``)."""
    inner = value
    for key in reversed(keys[1:]):
        inner = {key: inner}
    return f"{to_inline_yaml(keys[0])}: {to_inline_yaml(inner)}"


def _block_lines(keys: tuple[str, ...], value: Any, indent: str) -> list[str]:
    """Nested keys with a value as lines of a block mapping."""
    lines = [f"{indent}{' ' * (_INDENT * depth)}{to_inline_yaml(key)}:" for depth, key in enumerate(keys)]
    lines[-1] += f" {to_inline_yaml(value)}"
    return lines


def to_inline_yaml(value: Any) -> str:
    """A value as YAML, on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return _format_number(value)
    if isinstance(value, str):
        return _yaml_string(value)
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{to_inline_yaml(str(key))}: {to_inline_yaml(inner)}" for key, inner in value.items())
            + "}"
        )
    return "[" + ", ".join(to_inline_yaml(inner) for inner in value) + "]"


def _format_number(value: float) -> str:
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    if e:  # PyYAML reads 1e-05 as a string
        mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
        return f"{mantissa}e{exponent if exponent[0] in '+-' else '+' + exponent}"
    return text


def _yaml_string(value: str) -> str:
    plain = value and all(character.isalnum() or character in "_-./@ " for character in value)
    if (
        plain
        and value == value.strip()
        and value[0] not in "-.@ "
        and parse_yaml_scalar(value, None, plain=True)[0] == value
    ):
        return value
    return json.dumps(value, ensure_ascii=False)
