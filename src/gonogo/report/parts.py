"""Which part of the model costs what: the modules that hold memory at a peak, folded to a handful of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gonogo.finding.rehearsal import ModuleMemory

_SMALL = 0.03
"""A part of less than this share is not divided further."""


class _Node:
    """A place in the model's tree: what its own modules hold, and what is below it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.own: Counter[str] = Counter()
        self.count = 1
        self.below: dict[str, _Node] = {}

    @property
    def held(self) -> Counter[str]:
        """By category, with all that is below."""
        return sum((node.held for node in self.below.values()), Counter(self.own))

    @property
    def members(self) -> int:
        """How many modules of a list stand in this place."""
        return max([self.count, *(node.members for node in self.below.values())])

    def divided(self) -> list[_Node]:
        """What it is made of: its parts, and itself where it holds something of its own."""
        parts = list(self.below.values())
        if self.own:
            itself = _Node(self.path)
            itself.own, itself.count = self.own, self.count
            parts.append(itself)
        return parts


def largest_parts(modules: Iterable[ModuleMemory], rows: int) -> list[ModuleMemory]:
    """At most about ``rows`` parts, largest first, the largest ones divided as far as there is room.

    Together they hold what ``modules`` hold.
    """
    root = _Node("")
    for held in modules:
        node = root
        for name in held.module.split(".") if held.module else ():
            path = f"{node.path}.{name}".removeprefix(".")
            node = node.below.setdefault(name, _Node(path))
        node.own.update(held.by_category)
        node.count = max(node.count, held.count)
    whole = root.held.total()
    parts = root.divided()
    while True:
        large = [part for part in parts if part.below and part.held.total() > whole * _SMALL]
        fitting = [part for part in large if len(parts) - 1 + len(part.divided()) <= rows or len(part.divided()) == 1]
        if not fitting:
            break
        largest = max(fitting, key=lambda part: part.held.total())
        parts.remove(largest)
        parts += largest.divided()
    found = [ModuleMemory(part.path, dict(part.held), part.members) for part in parts]
    found.sort(key=lambda part: (-part.bytes, part.module))
    return [part for part in found if part.bytes]


def together(parts: Iterable[ModuleMemory], name: str) -> ModuleMemory:
    """Several parts as one of that name."""
    held = sum((Counter(part.by_category) for part in parts), Counter[str]())
    return ModuleMemory(name, dict(held))
