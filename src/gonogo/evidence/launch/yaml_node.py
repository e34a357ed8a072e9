"""A YAML document with its places: what is asked of something that is not there is nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from gonogo.evidence.document.source_file import Place, SourceFile


class Word(msgspec.Struct, frozen=True):
    """A text of the file, and where it stands; ``text`` is None where the queue makes it."""

    text: str | None
    place: Place
    block: bool = False
    """It is a block of lines as they are (``|``), so that a shell may read it where it stands."""


class Node:
    """A node of the document, or nothing: what is asked of nothing is nothing."""

    def __init__(self, node: Any, source: SourceFile) -> None:
        self.node = node
        self.source = source

    def __getitem__(self, key: str) -> Node:
        for name, value in self.items():
            if name == key:
                return value
        return Node(None, self.source)

    def items(self) -> Iterator[tuple[str, Node]]:
        """Keys and values of a mapping."""
        if self.node is not None and self.node.id == "mapping":
            for key, value in self.node.value:
                yield str(key.value), Node(value, self.source)

    def __iter__(self) -> Iterator[Node]:
        if self.node is not None and self.node.id == "sequence":
            yield from (Node(one, self.source) for one in self.node.value)

    @property
    def text(self) -> str | None:
        """Of a scalar, as it is written."""
        return self.node.value if self.node is not None and self.node.id == "scalar" else None

    @property
    def number(self) -> int | None:
        """Of a scalar that is one."""
        return int(self.text) if self.text is not None and re.fullmatch(r"\d{1,7}", self.text) else None

    @property
    def place(self) -> Place:
        """Where it stands, in bytes of the file."""
        if self.node is None:
            return Place(self.source, 0, 0)
        start, end = (
            self.source.start + len(self.source.text[: mark.index].encode("utf-8"))
            for mark in (self.node.start_mark, self.node.end_mark)
        )
        return Place(self.source, start, max(start, end))

    def word(self) -> Word:
        """A scalar with its place."""
        return Word(self.text, self.place, self.node is not None and getattr(self.node, "style", None) == "|")
