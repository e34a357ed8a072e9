"""The progress bar while logs are read: on a terminal, and only where it takes a while."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from gonogo.finding import Text

PATIENCE = 1.0
"""Seconds before the bar is shown."""

_READING = Text("reading logs", "正在读取日志")


@contextmanager
def reading_display(logs: list[str], language: str, console: Console | None = None) -> Iterator[Callable[[int], None]]:
    """What to call with the number of bytes just read: a bar on stderr, or nothing where that is no terminal."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda count: None
        return
    bar = Progress(
        TextColumn(_READING.in_language(language)),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task("", total=_size(logs))
    begun = time.monotonic()
    shown = False

    def advance(count: int) -> None:
        nonlocal shown
        bar.update(task, advance=count)
        if not shown and time.monotonic() - begun > PATIENCE:
            shown = True
            bar.start()

    try:
        yield advance
    finally:
        if shown:
            bar.stop()


def _size(logs: list[str]) -> int | None:
    """The bytes to read, or None where that can't be known beforehand (standard input, compressed files)."""
    total = 0
    for log in logs:
        if log.endswith((".gz", ".bz2", ".xz")) or not os.path.isfile(log):
            return None
        total += os.path.getsize(log)
    return total
