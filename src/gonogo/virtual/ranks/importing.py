"""Imports torch, the first step of every worker."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

from gonogo.virtual.patching.garbage import raise_gc_thresholds

VISIBLE = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
"""Environment variables that determine which accelerators a process sees."""


def import_worker() -> Callable[[str], NoReturn]:
    """Import torch and return the worker's ``main``.

    Real accelerators of this machine must not be touched, so they are hidden while torch is imported. The program's
    own values are restored in the environment before it runs.
    """
    visible = {name: os.environ.get(name) for name in VISIBLE}
    os.environ.update(dict.fromkeys(VISIBLE, ""))
    raise_gc_thresholds()
    from gonogo.virtual.ranks.worker import main

    for name, value in visible.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return main
