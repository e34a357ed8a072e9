"""What a release knows of its config: keys within keys."""

from __future__ import annotations

from typing import Any

_KINDS = {bool: "bool", int: "int", float: "float", str: "str", list: "list", dict: "object"}
_WORDS = ("deprecated", "replacement", "same_as", "values", "bounds")


class Key:
    """One key. ``kind`` is empty where nothing tells the type; ``closed``: unknown keys in it are refused;
    ``free``: it is handed on whole, so what else may stand in it is not told.
    """

    def __init__(self) -> None:
        self.children: dict[str, Key] = {}
        self.kind = ""
        self.default: Any = None
        self.values: list[Any] = []
        self.bounds: dict[str, float] = {}
        self.closed = False
        self.free = False
        self.deprecated = False
        self.replacement = ""
        self.same_as = ""
        self.refused = False

    def at(self, path: tuple[str, ...]) -> Key:
        """The key under a path; it is made where it isn't there."""
        key = self
        for name in path:
            key = key.children.setdefault(name, Key())
        return key

    def defaults_to(self, value: Any) -> None:
        """The value that holds where the key isn't set; it tells the type too."""
        if value is not None and self.default is None and _is_json(value):
            self.default = value
        if not self.kind and value is not None:
            self.kind = _KINDS.get(type(value), "")

    @property
    def type(self) -> str:
        """The type's name."""
        return self.kind or ("object" if self.children else "any")


def _is_json(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_json(one) for one in value)
    return isinstance(value, (bool, int, float, str))
