from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import pytest

from gonogo.evidence.log.sieve import BYTES_AFTER_MATCH, BYTES_BEFORE_MATCH, WHOLE, KeptLog, LogSieve

ROOM = 1 << 18
FILLER = b"{'loss': 1.25, 'grad_norm': 0.5, 'epoch': 0.1}\n"


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def kept(data: bytes, *, words: tuple[str, ...] = ("Error",), room: int = ROOM, size: int = 1 << 16) -> KeptLog:
    return LogSieve(words).keep_relevant_parts(pieces(data, size), room)


def lines_with_numbers(found: KeptLog) -> dict[int, bytes]:
    numbered: dict[int, bytes] = {}
    for part in found.parts:
        for offset, line in enumerate(part.data.removesuffix(b"\n").split(b"\n")):
            assert part.line + offset not in numbered  # no line is kept twice
            numbered[part.line + offset] = line
    return numbered


def test_a_short_log_is_kept_whole() -> None:
    assert kept(b"a\nb") == KeptLog(parts=kept(b"a\nb").parts, lines=2)
    assert kept(b"a\nb").parts[0].data == b"a\nb"


def test_an_empty_log() -> None:
    assert kept(b"") == KeptLog([], 0)


def test_no_words() -> None:
    with pytest.raises(ValueError, match="without words"):
        LogSieve(["", ""])


@pytest.mark.parametrize("size", [17, 4096, 1 << 16, 1 << 22])
def test_what_is_kept_are_the_lines_around_a_word_with_their_numbers(size: int) -> None:
    generator = random.Random(size)
    rows = [FILLER.rstrip(b"\n") + b" %d" % number for number in range(30_000)]
    hits = sorted(generator.sample(range(250, len(rows), 500), 9))
    for hit in hits:
        rows[hit] = b"ValueError: %d" % hit
    data = b"\n".join(rows)
    if size == 17:
        data = data[: WHOLE + (1 << 17)]
        hits = [hit for hit in hits if b"ValueError: %d\n" % hit in data]
    found = kept(data, size=size)
    assert found.lines == data.count(b"\n") + 1
    numbered = lines_with_numbers(found)
    assert all(rows[number - 1].startswith(line) for number, line in numbered.items())
    for hit in hits:
        assert numbered[hit + 1] == rows[hit]
        assert {hit - 20, hit - 1, hit + 3, hit + 40, hit + 120} & set(range(1, data.count(b"\n") + 1)) <= set(numbered)
    assert sum(len(part.data) for part in found.parts) < (len(hits) + 1) * (
        BYTES_BEFORE_MATCH + BYTES_AFTER_MATCH + 200
    )


def test_the_first_and_the_last_errors_are_kept_where_all_is_errors() -> None:
    data = b"".join(b"ValueError: %07d\n" % number for number in range(300_000))
    found = kept(data)
    numbered = lines_with_numbers(found)
    assert numbered[1] == b"ValueError: 0000000"
    assert numbered[300_000] == b"ValueError: 0299999"
    assert found.dropped_bytes > 0
    assert sum(len(part.data) for part in found.parts) < ROOM + 4 * (BYTES_BEFORE_MATCH + BYTES_AFTER_MATCH)
    assert sum(len(part.data) for part in found.parts) + found.dropped_bytes == len(data)


@pytest.mark.parametrize("ending", [b"", b"\n", b"\nValueError: last"])
def test_a_line_of_20_mb(ending: bytes) -> None:
    line = b"x" * (10 << 20) + b"ValueError: inside" + b"y" * (10 << 20)
    tracemalloc.start()
    found = kept(line + ending, size=1 << 22)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert any(b"ValueError: inside" in part.data for part in found.parts)
    assert not ending.endswith(b"last") or found.parts[-1].data.endswith(b"last")
    assert sum(len(part.data) for part in found.parts) < 4 * (BYTES_BEFORE_MATCH + BYTES_AFTER_MATCH)
    assert peak < 50 << 20  # a few blocks, whatever the line's length


def test_a_word_across_two_blocks() -> None:
    data = FILLER * 40_000
    middle = len(data) // 2
    found = LogSieve(["Error"]).keep_relevant_parts([data[:middle], b"\nValueEr", b"ror: no\n", data[middle:]], ROOM)
    assert any(b"ValueError: no\n" in part.data for part in found.parts)


def test_nul_bytes_and_rubbish() -> None:
    data = bytes(random.Random(1).randrange(256) for _ in range(1 << 17)) * 12 + b"\n\x00ValueError: no\x00\n" + FILLER
    found = kept(data)
    assert any(b"ValueError: no" in part.data for part in found.parts)
