"""Logs for the tests of this folder, from text."""

from __future__ import annotations

import io
from collections.abc import Sequence

from gonogo.evidence.log.failure_log import FailureLog, read_logs
from gonogo.evidence.log.line import LogLine, clean_lines
from gonogo.evidence.log.sieve import Part
from gonogo.evidence.log.source import LogSource
from gonogo.evidence.log.traceback import RaisedError, parse_tracebacks
from gonogo.evidence.setup import Setup

TRACEBACK = """Traceback (most recent call last):
  File "/home/li/sft/train.py", line 88, in <module>
    main()
  File "/home/li/sft/train.py", line 71, in main
    loss.backward()
    ^^^^^^^^^^^^^^^
RuntimeError: the loss is no scalar
"""


def lines_of(data: str | bytes, rank: int | None = None) -> list[LogLine]:
    """The cleaned lines of a log."""
    return clean_lines("a.log", rank, [Part(1, data if isinstance(data, bytes) else data.encode())])


def raised(text: str) -> list[RaisedError]:
    """The exceptions that one channel's lines tell of."""
    return list(parse_tracebacks(lines_of(text)))


def source_of(data: str | bytes, label: str = "a.log", rank: int | None = None) -> LogSource:
    """A log in memory."""
    content = data if isinstance(data, bytes) else data.encode()
    return LogSource(label, lambda: io.BytesIO(content), rank)


def log_of(*data: str | bytes, words: Sequence[str] = (), given: Setup | None = None) -> FailureLog:
    """A failed run's logs, named ``0.log``, ``1.log`` …"""
    sources = [source_of(one, f"{index}.log") for index, one in enumerate(data)]
    return read_logs(sources, words, given or Setup())
