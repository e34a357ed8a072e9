"""Memory by part of the model: the modules that hold memory at a peak, folded into a handful of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gonogo.finding.rehearsal import ModuleMemory

_MIN_SPLIT_SHARE = 0.03
"""A part with less than this share is not split further."""


class _ModuleNode:
    """A node of the module tree: what its own modules hold, and its children."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.own: Counter[str] = Counter()
        self.count = 1
        self.below: dict[str, _ModuleNode] = {}

    @property
    def held(self) -> Counter[str]:
        """Bytes by category, including all descendants."""
        return sum((node.held for node in self.below.values()), Counter(self.own))

    @property
    def members(self) -> int:
        """How many list elements this node stands for."""
        return max([self.count, *(node.members for node in self.below.values())])

    def split_into_children(self) -> list[_ModuleNode]:
        """The node split into its children, plus itself if its own modules hold memory."""
        parts = list(self.below.values())
        if self.own:
            itself = _ModuleNode(self.path)
            itself.own, itself.count = self.own, self.count
            parts.append(itself)
        return parts


def largest_parts(modules: Iterable[ModuleMemory], rows: int) -> list[ModuleMemory]:
    """About ``rows`` parts at most, largest first, with the largest split as long as there is room.

    Their total is that of ``modules``.
    """
    root = _ModuleNode("")
    for held in modules:
        node = root
        for name in held.module.split(".") if held.module else ():
            path = f"{node.path}.{name}".removeprefix(".")
            node = node.below.setdefault(name, _ModuleNode(path))
        node.own.update(held.by_category)
        node.count = max(node.count, held.count)
    whole = root.held.total()
    parts = root.split_into_children()
    while True:
        large = [part for part in parts if part.below and part.held.total() > whole * _MIN_SPLIT_SHARE]
        fitting = [
            part
            for part, count in ((part, len(part.split_into_children())) for part in large)
            if len(parts) - 1 + count <= rows or count == 1
        ]
        if not fitting:
            break
        largest = max(fitting, key=lambda part: part.held.total())
        parts.remove(largest)
        parts += largest.split_into_children()
    found = [ModuleMemory(part.path, dict(part.held), part.members) for part in parts]
    found.sort(key=lambda part: (-part.bytes, part.module))
    return [part for part in found if part.bytes]


def merge_parts(parts: Iterable[ModuleMemory], name: str) -> ModuleMemory:
    """Merge several parts into one of that name."""
    held = sum((Counter(part.by_category) for part in parts), Counter[str]())
    return ModuleMemory(name, dict(held))
