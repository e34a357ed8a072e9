"""The content of a configuration file in any format: values with their places, nested in objects.

JSON, YAML and Python literals are all converted to this form, so that configs are interpreted by the same code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gonogo.evidence.field import Field
from gonogo.evidence.source_file import Place


class TreeNode(msgspec.Struct, frozen=True):
    """A value of a config file. ``field.value`` is plain Python; ``members`` is None if it isn't an object."""

    field: Field
    members: Mapping[str, Member] | None = None

    def find(self, keys: tuple[str, ...]) -> TreeNode | None:
        """The value under nested keys, or None if one is missing."""
        node = self
        for key in keys:
            member = node.members.get(key) if node.members is not None else None
            if member is None:
                return None
            node = member.node
        return node

    def member(self, keys: tuple[str, ...]) -> Member | None:
        """The key and value under nested keys, or None if one is missing."""
        parent = self.find(keys[:-1]) if keys else None
        return parent.members.get(keys[-1]) if parent is not None and parent.members is not None else None

    def entries(self) -> Iterator[tuple[tuple[str, ...], Field]]:
        """All values below this one with their nested keys, objects before their members."""
        pending: list[tuple[tuple[str, ...], TreeNode]] = [((), self)]
        while pending:
            keys, node = pending.pop()
            if keys:
                yield keys, node.field
            inner = list((node.members or {}).items())
            pending.extend(((*keys, name), member.node) for name, member in reversed(inner))


class Member(msgspec.Struct, frozen=True):
    """A key of an object, with its value."""

    key_place: Place | None
    node: TreeNode


def to_tree(value: Any) -> TreeNode:
    """Plain Python values as a tree without places; a value that is a Field keeps its place and status."""
    # No parser accepts deeper nesting; what is below counts as unknown.
    return _build_tree(value, 100)


def _build_tree(value: Any, levels_left: int) -> TreeNode:
    """Build a tree down to a limited depth."""
    field = value if isinstance(value, Field) else Field(value)
    if not field.known or not isinstance(field.value, Mapping):
        return TreeNode(field)
    if not levels_left:
        return TreeNode(Field.not_known(field.place))
    members = {str(key): Member(None, _build_tree(one, levels_left - 1)) for key, one in field.value.items()}
    plain = {key: member.node.field.value for key, member in members.items()}
    return TreeNode(Field(plain, place=field.place), members)
