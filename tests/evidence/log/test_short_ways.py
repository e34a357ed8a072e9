"""Short ways through a log that say the same as the long ones."""

from __future__ import annotations

import re

import pytest

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.line import MAX_LINE_LENGTH, LogLine, clean_lines
from gonogo.evidence.log.sieve import Part
from gonogo.evidence.patterns import Pattern, with_numbers_zeroed
from gonogo.evidence.setup import Setup


def test_lines_without_anything_strange_are_read_as_all_others() -> None:
    plain = b'[rank1]: Traceback  \n  File "a.py", line 1\n\n' + b"x" * (MAX_LINE_LENGTH + 5) + b"\nlast"
    one = clean_lines("a.log", None, [Part(4, plain)])
    other = clean_lines("a.log", None, [Part(4, plain + "\n\u2026".encode())])
    assert one == other[:-1]
    assert [line.number for line in one] == [4, 5, 6, 7, 8]
    assert [line.text for line in clean_lines("a.log", None, [Part(1, b"a\x1b[1mb\rc\x00d\n")])] == ["ab", "cd"]


@pytest.mark.parametrize("said", ["[Errno 28] No space", "CUDA error: 700", "rank 7 of 64", "no number"])
def test_what_stands_in_a_text_stands_in_its_shape(said: str) -> None:
    assert with_numbers_zeroed(said.encode()) in with_numbers_zeroed(f"x1{said}2y 100".encode())
    log = FailureLog([LogLine("a", number, f"line {number}: {said}") for number in range(9000)], Setup())
    assert log.has(said)
    assert log.find(Pattern(re.escape(said))) is not None
    assert log.find(Pattern("never said")) is None
