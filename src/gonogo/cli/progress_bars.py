"""Progress bars for reading logs and checking files, shown only on a terminal and only if it takes a while."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from gonogo.finding import translated

if TYPE_CHECKING:
    from rich.progress import Progress

_DELAY_SECONDS = 1.0
"""Seconds before a progress bar appears."""
_READING_LOGS = translated("reading logs")
_CHECKING = translated("checking")


@contextmanager
def log_read_progress(logs: list[str], language: str, stream: TextIO | None = None) -> Iterator[Callable[[int], None]]:
    """What to call with the number of bytes just read: a bar on stderr, or nothing where that is no terminal."""
    read = 0
    with _delayed_bar(stream, _READING_LOGS.in_language(language), in_bytes=True, total=_total_bytes(logs)) as update:

        def advance_bar(count: int) -> None:
            nonlocal read
            read += count
            update(completed=read)

        yield advance_bar


@contextmanager
def check_progress(language: str, stream: TextIO | None = None) -> Iterator[Callable[[int, int], None]]:
    """What to call with how many of how many are done: a bar on stderr, or nothing where that is no terminal."""
    with _delayed_bar(stream, _CHECKING.in_language(language)) as update:
        yield lambda done, total: update(completed=done, total=total)


@contextmanager
def _delayed_bar(
    stream: TextIO | None, text: str, *, in_bytes: bool = False, total: int | None = None
) -> Iterator[Callable[..., None]]:
    """What to call with a bar's new ``completed`` and ``total``; it does nothing where the stream is no terminal."""
    stream = stream or sys.stderr
    begun = time.monotonic()
    bar: Progress | None = None

    def update(**values: Any) -> None:
        nonlocal bar
        if bar is None and stream.isatty() and time.monotonic() - begun > _DELAY_SECONDS:
            from rich import progress
            from rich.console import Console

            unit = (
                (progress.DownloadColumn(binary_units=True), progress.TransferSpeedColumn())
                if in_bytes
                else (progress.MofNCompleteColumn(),)
            )
            columns = (progress.TextColumn(text), progress.BarColumn(), *unit, progress.TimeRemainingColumn())
            bar = progress.Progress(*columns, console=Console(file=stream), transient=True)
            bar.add_task("", total=total)
            bar.start()
        if bar is not None:
            bar.update(bar.task_ids[0], **values)

    try:
        yield update
    finally:
        if bar is not None:
            bar.stop()


def _total_bytes(logs: list[str]) -> int | None:
    """The number of bytes to read; None if it can't be known beforehand (standard input, compressed files)."""
    total = 0
    for log in logs:
        if log.endswith((".gz", ".bz2", ".xz")) or not os.path.isfile(log):
            return None
        total += os.path.getsize(log)
    return total
