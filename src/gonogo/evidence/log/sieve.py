"""Keep the parts of a log that can matter: what stands around any of a few hundred words.

A gigabyte is searched by one automaton, at nearly the speed of the disk; Python sees only what is kept. Of a log that
is nothing but errors the first and the last are kept, so memory stays flat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

BEFORE = 1 << 11
"""Bytes kept before a word that matters: what the program was doing."""
AFTER = 1 << 13
"""Bytes kept after it: a traceback's frames, a message's rest. Words further on keep more."""
WHOLE = 1 << 20
"""A log of at most so many bytes is kept whole, where there is room for it."""
LONGEST_LINE = 1 << 22
"""Bytes of a line that are looked at as one; a longer one (a progress bar without a line's end) comes in pieces."""


@dataclass(frozen=True)
class Part:
    """A part of a log, and the number of its first line, from 1."""

    line: int
    data: bytes


@dataclass(frozen=True)
class Kept:
    """What was kept of a log. ``dropped_bytes`` of what matters found no room between the first parts and the last."""

    parts: list[Part]
    lines: int
    dropped_bytes: int = 0


class Sieve:
    """Searches logs for any of ``words``, which are literals, case counting. Raises ValueError where there is none."""

    def __init__(self, words: Iterable[str]) -> None:
        import re2

        literals = sorted({word for word in words if word})
        if not literals:
            raise ValueError("a sieve without words keeps nothing")
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1  # bytes: a log may be in any encoding, and cut anywhere
        options.log_errors = False
        options.never_capture = True
        options.max_mem = 1 << 26
        self._pattern: Any = re2.compile(b"|".join(re2.escape(word.encode("utf-8")) for word in literals), options)

    def keep(self, chunks: Iterable[bytes], room: int) -> Kept:
        """What matters in a log; at most ``room`` bytes (and a part more), half from its start, half from its end."""
        stream = iter(chunks)
        opening = b""
        for chunk in stream:
            opening += chunk
            if len(opening) > min(WHOLE, room):
                break
        else:
            return Kept([Part(1, opening)], _lines(opening)) if opening else Kept([], 0)
        search = _Search(self._pattern, room // 2)
        for block in _chained(opening, stream):
            search.feed(block)
        return search.end()


def _lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n"))


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


class _Search:
    """A log's search, fed block by block. Offsets are into ``_buffer``; ``_counted`` stands on line ``_line``."""

    def __init__(self, pattern: Any, half_room: int) -> None:
        self._pattern = pattern
        self._buffer = b""
        self._counted, self._line = 0, 1
        self._searched = 0
        self._kept_to = 0
        self._first: list[Part] = []
        self._last: deque[Part] = deque()
        self._room_first = self._room_last = half_room
        self._dropped = 0

    def feed(self, block: bytes) -> None:
        self._buffer += block
        end = self._buffer.rfind(b"\n", self._searched) + 1
        if end == 0 and len(self._buffer) - self._searched > LONGEST_LINE:
            end = len(self._buffer)
        if end:
            self._search_to(end)

    def end(self) -> Kept:
        unfinished = bool(self._buffer) and not self._buffer.endswith(b"\n")
        if len(self._buffer) > self._searched:
            self._search_to(len(self._buffer))
        lines = self._line_at(len(self._buffer)) - 1 + unfinished
        return Kept([*self._first, *self._last], lines, self._dropped)

    def _line_at(self, offset: int) -> int:
        """The number of the line that ``offset`` stands on; offsets are asked for in their order."""
        self._line += self._buffer.count(b"\n", self._counted, offset)
        self._counted = offset
        return self._line

    def _search_to(self, end: int) -> None:
        buffer, position = self._buffer, self._searched
        if self._kept_to > position:  # the last block's part goes on into this one
            position = self._take(position, self._kept_to, end)
        while position < end and (match := self._pattern.search(buffer, position, end)):
            hit = match.start()
            begin = self._kept_to
            if hit - BEFORE > begin:
                begin = buffer.find(b"\n", hit - BEFORE, hit) + 1 or hit - BEFORE
            position = self._take(begin, hit + AFTER, end)
        # What stands before the next block's first hit may be needed, so some of this one stays.
        cut = max(end - BEFORE, 0)
        if cut:
            cut = buffer.find(b"\n", cut, end - 1) + 1 or cut
        cut = max(cut, self._counted)
        self._line_at(cut)
        self._buffer = buffer[cut:]
        self._counted = 0
        self._searched = end - cut
        self._kept_to = max(self._kept_to - cut, 0)

    def _take(self, begin: int, wanted: int, end: int) -> int:
        """Keep from ``begin`` to the end of a line at or before ``wanted``; says from where to search on."""
        stop = min(wanted, end)
        stop = self._buffer.rfind(b"\n", begin, stop) + 1 or stop
        self._put(Part(self._line_at(begin), self._buffer[begin:stop]))
        self._kept_to = wanted if wanted > end else stop
        return stop

    def _put(self, part: Part) -> None:
        size = len(part.data)
        if self._room_first > 0:
            self._first.append(part)
            self._room_first -= size
            return
        self._last.append(part)
        self._room_last -= size
        while self._room_last < 0 and len(self._last) > 1:
            gone = len(self._last.popleft().data)
            self._room_last += gone
            self._dropped += gone
