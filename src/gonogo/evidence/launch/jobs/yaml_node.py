"""A YAML document with places; looking up a key that doesn't exist gives an empty node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from gonogo.evidence.source_file import Place, SourceFile


class PlacedText(msgspec.Struct, frozen=True):
    """A text of the file with its place; ``text`` is None if the queue generates it."""

    text: str | None
    place: Place
    style: str = ""
    """The style of the scalar: ``|``, ``>``, a quotation mark, or empty."""


class YamlNode:
    """A node of a YAML document, or an empty node: its lookups give empty nodes again."""

    def __init__(self, node: Any, source: SourceFile, documents: Sequence[Any] = ()) -> None:
        self.node = node
        self.source = source
        self._documents = documents

    def __getitem__(self, key: str) -> YamlNode:
        for name, value in self.items():
            if name == key:
                return value
        return self._wrap_node(None)

    def _wrap_node(self, node: Any) -> YamlNode:
        return YamlNode(node, self.source, self._documents)

    def documents(self) -> Iterator[YamlNode]:
        """All documents of the node's file."""
        yield from (self._wrap_node(one) for one in self._documents)

    def items(self) -> Iterator[tuple[str, YamlNode]]:
        """Keys and values of a mapping: first its own, then merged ones (``<<: *template``)."""
        waiting, seen = [self.node], set()
        while waiting:
            mapping = waiting.pop(0)
            if mapping is None or mapping.id != "mapping" or id(mapping) in seen:
                continue
            seen.add(id(mapping))
            for key, value in mapping.value:
                if key.value != "<<":
                    yield str(key.value), self._wrap_node(value)
                else:
                    waiting += value.value if value.id == "sequence" else [value]

    def __iter__(self) -> Iterator[YamlNode]:
        if self.node is not None and self.node.id == "sequence":
            yield from (self._wrap_node(one) for one in self.node.value)

    @property
    def text(self) -> str | None:
        """A scalar's text as written; None for other nodes."""
        return self.node.value if self.node is not None and self.node.id == "scalar" else None

    @property
    def number(self) -> int | None:
        """A scalar's value if it is an integer, otherwise None."""
        return int(self.text) if self.text is not None and re.fullmatch(r"\d{1,7}", self.text) else None

    @property
    def place(self) -> Place:
        """Its place, in bytes of the file."""
        if self.node is None:
            return Place(self.source, 0, 0)
        start, end = (
            self.source.start + len(self.source.text[: mark.index].encode("utf-8"))
            for mark in (self.node.start_mark, self.node.end_mark)
        )
        return Place(self.source, start, max(start, end))

    def placed_text(self) -> PlacedText:
        """The scalar's text with its place."""
        return PlacedText(self.text, self.place, getattr(self.node, "style", None) or "")
