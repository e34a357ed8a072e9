"""Processes that a test waits for."""

from __future__ import annotations

import time

import psutil


def is_gone(pid: int, within: float = 60.0) -> bool:
    """Whether a process has ended, or ends within so many seconds: nobody may have reaped it yet."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False
