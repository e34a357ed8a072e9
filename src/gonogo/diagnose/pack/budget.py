"""Distribute a token budget over sections: each gets its share first, then the remainder is used for what is left."""

from __future__ import annotations

from dataclasses import dataclass, field

from gonogo.diagnose.pack.tokens import count_tokens
from gonogo.finding import Text, translated

_OMITTED_COUNT = translated("[left out for length: {count}]")
_TRUNCATION_MARK = translated("[… cut …]")
_CUT_MARK_TOKENS = 20


@dataclass
class PackSection:
    """A section of the evidence. ``blocks`` are in reading order, each with its priority: 0 is taken first."""

    title: Text
    most: int
    blocks: list[tuple[int, str]] = field(default_factory=list)

    def add(self, rank: int, text: str) -> None:
        """Append a block, unless it is empty."""
        if text.strip():
            self.blocks.append((rank, text.rstrip()))


def lay_out_sections(header: str, sections: list[PackSection], max_tokens: int, language: str) -> str:
    """The text of the non-empty sections, with at most ``max_tokens`` tokens."""
    sections = [section for section in sections if section.blocks]
    left = max_tokens - count_tokens(header) - 2
    titles = {id(section): f"## {section.title.in_language(language)}" for section in sections}
    left -= sum(count_tokens(title) + 3 + _CUT_MARK_TOKENS for title in titles.values())
    chosen: dict[int, dict[int, str]] = {id(section): {} for section in sections}
    for again in (False, True):
        for section in sections:
            taken = chosen[id(section)]
            room = left if again else min(left, section.most)
            for number, (_, text) in sorted(enumerate(section.blocks), key=lambda one: (one[1][0], one[0])):
                if number in taken:
                    continue
                shown = _fit_to_tokens(text, room - 1, language)
                if not shown or (not again and shown != text and taken):
                    break
                used = count_tokens(shown) + 1
                taken[number] = shown
                room -= used
                left -= used
                if shown != text:
                    break
    parts = [header]
    for section in sections:
        taken = chosen[id(section)]
        missing = len(section.blocks) - len(taken)
        lines = [titles[id(section)], *(taken[number] for number in sorted(taken))]
        if missing:
            lines.append(_OMITTED_COUNT.format(count=missing).in_language(language))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _fit_to_tokens(text: str, max_tokens: int, language: str) -> str:
    """The text, or its first and last lines if it is too long; empty if not even a few lines fit."""
    if count_tokens(text) <= max_tokens:
        return text
    lines = text.split("\n")
    mark = _TRUNCATION_MARK.in_language(language)
    room = max_tokens - count_tokens(mark) - 2
    head: list[str] = []
    tail: list[str] = []
    first, last = 0, len(lines) - 1
    while first <= last:
        from_head = len(head) <= 2 * len(tail)
        line = lines[first] if from_head else lines[last]
        cost = count_tokens(line) + 1
        if cost > room:
            break
        room -= cost
        if from_head:
            head.append(line)
            first += 1
        else:
            tail.append(line)
            last -= 1
    if not head or len(head) + len(tail) < min(2, len(lines)):
        return ""
    return "\n".join([*head, mark, *reversed(tail)])
