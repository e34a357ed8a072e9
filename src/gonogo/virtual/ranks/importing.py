"""Imports torch, the first step of every worker."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import NoReturn

from gonogo.virtual.patching.garbage import raise_gc_thresholds

VISIBLE = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
"""Environment variables that determine which accelerators a process sees."""


@contextlib.contextmanager
def hidden_accelerators() -> Iterator[None]:
    """Hide the real accelerators of this machine, which must not be touched while torch is imported.

    The program's own values are restored in the environment afterwards.
    """
    visible = {name: os.environ.get(name) for name in VISIBLE}
    os.environ.update(dict.fromkeys(VISIBLE, ""))
    try:
        yield
    finally:
        for name, value in visible.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def import_worker() -> Callable[[str], NoReturn]:
    """Import torch and return the worker's ``main``."""
    with hidden_accelerators():
        raise_gc_thresholds()
        from gonogo.virtual.ranks.worker import main
    return main
