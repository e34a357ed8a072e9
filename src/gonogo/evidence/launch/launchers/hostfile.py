"""DeepSpeed's hostfile, and its ``--include`` and ``--exclude``."""

from __future__ import annotations

MAX_HOSTFILE_BYTES = 1 << 20
"""In bytes: enough for some fifty thousand nodes."""
_MAX_SLOTS = 1 << 20
"""Of all hosts together: they are enumerated one by one if a filter excludes some of them."""


def parse_hostfile(text: str) -> dict[str, int] | None:
    """The hosts and their slots, in order; None if a line can't be parsed, or there are more than any cluster has."""
    hosts: dict[str, int] = {}
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if not line:
            continue
        name, _, rest = line.partition(" ")
        slots = rest.replace(" ", "").removeprefix("slots=")
        if not slots.isdecimal() or not slots.isascii() or name in hosts or len(slots) > 6:
            return None
        hosts[name] = int(slots)
    return hosts if hosts and sum(hosts.values()) <= _MAX_SLOTS else None


def filter_hosts(hosts: dict[str, int], include: str, exclude: str) -> dict[str, list[int]] | None:
    """The slots that a filter such as ``worker-0@worker-1:0,2`` leaves; None if it can't be applied."""
    slots = {name: list(range(count)) for name, count in hosts.items()}
    text = include or exclude
    if not text:
        return slots
    if include and exclude:
        return None
    left: dict[str, list[int]] = {} if include else {name: list(numbers) for name, numbers in slots.items()}
    for part in text.split("@"):
        name, colon, numbers = part.partition(":")
        chosen = parse_number_ranges(numbers) if colon else list(slots.get(name, []))
        if name not in slots or chosen is None:
            return None
        if include:
            left[name] = sorted({*left.get(name, []), *chosen})
        else:
            left[name] = [slot for slot in left[name] if slot not in chosen]
    return {name: numbers for name, numbers in left.items() if numbers}


def parse_include_filter(include: str) -> dict[str, list[int] | None] | None:
    """The hosts that ``--include`` names, with the slots listed for each (None: all of them)."""
    hosts: dict[str, list[int] | None] = {}
    for part in include.split("@"):
        name, colon, numbers = part.partition(":")
        chosen = parse_number_ranges(numbers) if colon else None
        if not name or (colon and chosen is None):
            return None
        hosts[name] = chosen
    return hosts


def parse_number_ranges(text: str) -> list[int] | None:
    """The numbers of ``0,2,5-7``; None if the text isn't such a list."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdecimal() and len(first) < 5):
            return None
        if not dash:
            numbers.add(int(first))
        elif last.isascii() and last.isdecimal() and len(last) < 5 and int(first) <= int(last):
            numbers.update(range(int(first), int(last) + 1))
        else:
            return None
    return sorted(numbers)
