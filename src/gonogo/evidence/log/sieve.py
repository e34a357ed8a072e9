"""Keeps the relevant parts of a log: the text around any of a few hundred words.

A single RE2 automaton searches a gigabyte at nearly the speed of the disk; Python only sees what is kept. Of a log
that consists of nothing but errors, the first and the last are kept, so memory stays bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from concurrent.futures import Future

BYTES_BEFORE_MATCH = 1 << 11
"""Bytes kept before a matching word: what the program was doing."""
BYTES_AFTER_MATCH = 1 << 13
"""Bytes kept after it: a traceback's frames, the rest of a message. Further words extend this."""
WHOLE = 1 << 20
"""A log of at most this many bytes is kept whole, if the limit for all logs allows it."""
MIN_LINE_COST = 32
"""Bytes that a shorter line counts as against a limit: reading a line takes as long however short it is."""
MAX_LINE_BYTES = 1 << 22
"""Bytes treated as one line; a longer one (a progress bar without newlines) is split."""


class Part(msgspec.Struct, frozen=True):
    """A part of a log, and the number of its first line, from 1."""

    line: int
    data: bytes


class KeptLog(msgspec.Struct, frozen=True):
    """The kept parts of a log. ``dropped_bytes``: relevant text in the middle that exceeded the limit."""

    parts: list[Part]
    lines: int
    dropped_bytes: int = 0


class LogSieve:
    """Searches logs for any of ``words`` and ``hints``: literals, case-sensitive.

    A hint may be in every line of a healthy log, so text kept for hints never takes the room of text kept for words.
    Hints are only searched for if a log is too long to be kept whole.
    Raises ValueError if there is no word.
    """

    def __init__(self, words: Iterable[str], hints: Iterable[str] = ()) -> None:
        strong = {word for word in words if word}
        if not strong:
            raise ValueError("a sieve without words keeps nothing")
        self._strong = strong
        self._hints = hints

    @cached_property
    def _strong_words(self) -> Any:
        """A matcher that finds all ``words`` at once."""
        return _compile_literals(self._strong)

    @cached_property
    def _all_words(self) -> Any:
        """A matcher that finds all ``words`` and ``hints`` at once."""
        return _compile_literals(self._strong | {hint for hint in self._hints if hint})

    def keep_relevant_parts(self, chunks: Iterable[bytes], max_bytes: int) -> KeptLog:
        """The parts of a log around ``words``: about ``max_bytes`` bytes, half from its start, half from its end.

        Fewer where lines are shorter than :data:`MIN_LINE_COST`. Three quarters of that are reserved for words, the
        rest is for hints.
        """
        stream = iter(chunks)
        opening = b""
        for chunk in stream:
            opening += chunk
            if _reading_cost(opening) > min(WHOLE, max_bytes):
                break
        else:
            return KeptLog([Part(1, opening)], _count_lines(opening)) if opening else KeptLog([], 0)
        from concurrent.futures import ThreadPoolExecutor  # not needed for a short log

        keeper = _PartCollector(max_bytes)
        # RE2 releases the GIL while it searches, so that lines are counted and parts kept in parallel.
        with ThreadPoolExecutor(1) as searcher:
            ahead: deque[tuple[bytes, Future[list[_WordMatch]]]] = deque()
            for block in _split_at_line_ends(chain((opening,), stream)):
                ahead.append((block, searcher.submit(self._find_matches, block)))
                if len(ahead) > 2:
                    block, hits = ahead.popleft()
                    keeper.keep_around_matches(block, hits.result())
            for block, hits in ahead:
                keeper.keep_around_matches(block, hits.result())
        return keeper.kept_log()

    def _find_matches(self, block: bytes) -> list[_WordMatch]:
        """The words found in a block, without those in text that another word keeps anyway."""
        found: list[_WordMatch] = []
        position = 0
        while match := self._all_words.search(block, position):
            start = match.start()
            end = start + BYTES_AFTER_MATCH
            position = block.rfind(b"\n", start, end) + 1 or end if end < len(block) else len(block)
            speaks = self._strong_words.search(block, start, position) is not None
            found.append(_WordMatch(start, position, max(end - len(block), 0), speaks))
        return found


def _compile_literals(literals: Iterable[str]) -> Any:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes: a log may be in any encoding, and cut anywhere
    options.log_errors = False
    options.never_capture = True
    options.max_mem = 1 << 26
    return re2.compile(b"|".join(re2.escape(word.encode("utf-8")) for word in sorted(literals)), options)


def _count_lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n"))


def _reading_cost(data: bytes) -> int:
    """An estimate of what it costs to parse a part: its bytes, and more for each line."""
    return max(len(data), MIN_LINE_COST * data.count(b"\n"))


def _split_at_line_ends(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes split at line ends, except in lines longer than :data:`MAX_LINE_BYTES`."""
    rest = b""
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            yield rest + chunk[:end]
            rest = chunk[end:]
        else:
            rest += chunk
            if len(rest) > MAX_LINE_BYTES:
                yield rest
                rest = b""
    if rest:
        yield rest


class _WordMatch(NamedTuple):
    """A word at ``start`` of a block: text up to ``end`` is kept for it, and ``owed`` bytes of the blocks to come."""

    start: int
    end: int
    owed: int
    speaks: bool
    """False if there are only hints up to ``end``."""


class _BoundedParts:
    """The first and the last parts, up to a limit on what they cost."""

    def __init__(self, room: int) -> None:
        self.first: list[Part] = []
        self.last: deque[Part] = deque()
        self.dropped = 0
        self._room_first = self._room_last = room // 2

    def add_part(self, part: Part) -> None:
        cost = _reading_cost(part.data)
        if self._room_first > 0:
            self.first.append(part)
            self._room_first -= cost
            return
        self.last.append(part)
        self._room_last -= cost
        while self._room_last < 0 and len(self.last) > 1:
            gone = self.last.popleft().data
            self._room_last += _reading_cost(gone)
            self.dropped += len(gone)


class _PartCollector:
    """Collects parts from the blocks of a log, in order."""

    def __init__(self, room: int) -> None:
        self._line = 1
        self._before = b""
        """The end of the last block, as far as it was not kept."""
        self._owed = 0
        self._owed_to = self._hinted = _BoundedParts(room // 4)
        self._spoken = _BoundedParts(room - room // 4)
        self._unfinished = False

    def keep_around_matches(self, block: bytes, hits: list[_WordMatch]) -> None:
        """Keep the text around the matches in the next block."""
        counted, line, kept_to = 0, self._line, 0
        if self._owed:
            kept_to = block.rfind(b"\n", 0, self._owed) + 1 or min(self._owed, len(block))
            self._owed_to.add_part(Part(line, block[:kept_to]))
            self._before = b""
            self._owed = max(self._owed - len(block), 0)
        for hit in hits:
            store = self._spoken if hit.speaks else self._hinted
            if hit.owed > self._owed:
                self._owed, self._owed_to = hit.owed, store
            if hit.end <= kept_to:
                continue
            begin = kept_to
            if hit.start - BYTES_BEFORE_MATCH > kept_to:
                begin = (
                    block.find(b"\n", hit.start - BYTES_BEFORE_MATCH, hit.start) + 1 or hit.start - BYTES_BEFORE_MATCH
                )
            line += block.count(b"\n", counted, begin)
            counted = begin
            before = self._before if begin == 0 else b""
            store.add_part(Part(line - before.count(b"\n"), before + block[begin : hit.end]))
            kept_to = hit.end
        self._line = line + block.count(b"\n", counted)
        self._unfinished = not block.endswith(b"\n")
        left = block[kept_to:] if kept_to else self._before + block
        start = max(len(left) - BYTES_BEFORE_MATCH, 0)
        if start:
            start = left.find(b"\n", start, -1) + 1 or start
        self._before = left[start:]

    def kept_log(self) -> KeptLog:
        """The parts kept. Text kept only for hints may be dropped without being counted."""
        spoken, hinted = self._spoken, self._hinted
        parts = sorted((*spoken.first, *spoken.last, *hinted.first, *hinted.last), key=lambda part: part.line)
        return KeptLog(parts, self._line - 1 + self._unfinished, spoken.dropped)
