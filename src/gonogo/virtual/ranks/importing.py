"""The import of torch, by which every worker begins."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

from gonogo.virtual.patching.garbage import raise_gc_thresholds

VISIBLE = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
"""The variables that say which accelerators a process sees."""


def import_worker() -> Callable[[str], NoReturn]:
    """The worker's ``main``, with torch imported.

    No real accelerator may be touched, whatever this machine has: they are hidden while torch is imported. What the
    program itself is told stands in the environment again before it runs.
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
