"""A limit on the processor time of one rule on one file, so that a slow one holds up no other."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class TimeLimitReached(BaseException):
    """Raised at the limit; a BaseException, so that no ``except Exception`` of a hazard catches it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`TimeLimitReached` within the block after that much processor time of this process.

    Without effect outside the main thread, where signals can't be handled.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _raise_time_limit)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _raise_time_limit(number: int, frame: FrameType | None) -> None:
    raise TimeLimitReached
