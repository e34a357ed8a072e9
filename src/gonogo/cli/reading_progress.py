"""The progress bar for reading logs, shown only on a terminal and only if it takes a while."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from gonogo.finding import translated

if TYPE_CHECKING:
    from rich.progress import Progress

PROGRESS_DELAY_SECONDS = 1.0
"""Seconds before the progress bar appears."""

_READING_LOGS = translated("reading logs")


@contextmanager
def log_read_progress(logs: list[str], language: str, stream: TextIO | None = None) -> Iterator[Callable[[int], None]]:
    """What to call with the number of bytes just read: a bar on stderr, or nothing where that is no terminal."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield lambda count: None
        return
    begun = time.monotonic()
    read = 0
    bar: Progress | None = None

    def advance_bar(count: int) -> None:
        nonlocal read, bar
        read += count
        if bar is None and time.monotonic() - begun > PROGRESS_DELAY_SECONDS:
            bar = _progress_bar(stream, language, _total_bytes(logs))
            bar.start()
        if bar is not None:
            bar.update(bar.task_ids[0], completed=read)

    try:
        yield advance_bar
    finally:
        if bar is not None:
            bar.stop()


def _progress_bar(stream: TextIO, language: str, total: int | None) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    bar = Progress(
        TextColumn(_READING_LOGS.in_language(language)),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(file=stream),
        transient=True,
    )
    bar.add_task("", total=total)
    return bar


def _total_bytes(logs: list[str]) -> int | None:
    """The number of bytes to read; None if it can't be known beforehand (standard input, compressed files)."""
    total = 0
    for log in logs:
        if log.endswith((".gz", ".bz2", ".xz")) or not os.path.isfile(log):
            return None
        total += os.path.getsize(log)
    return total
