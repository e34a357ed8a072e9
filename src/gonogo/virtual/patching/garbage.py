"""Tunes Python's garbage collector for the import of frameworks, whose objects it would traverse over and over.

From the first parameter or loaded file on it works as in any program, since it frees tensors, and when they are freed
is measured.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

from gonogo.virtual.patching.after_import import after_import

_DEFAULT_GC_THRESHOLD = gc.get_threshold()
_IMPORT_THRESHOLDS = (100_000, 50, 100)


def raise_gc_thresholds() -> None:
    """Make collections rare during imports."""
    gc.set_threshold(*_IMPORT_THRESHOLDS)


def restore_gc_thresholds() -> None:
    """Freeze what was imported, and restore the default thresholds. Only the first call has an effect."""
    if gc.get_threshold() == _IMPORT_THRESHOLDS:
        gc.freeze()
        gc.set_threshold(*_DEFAULT_GC_THRESHOLD)


def free_frames_of_imports() -> Callable[[], None]:
    """Free the frames that the import of ``torch._dynamo`` leaves in cycles, with their tensors; returns the undo.

    ``torch.fx.wrap`` keeps its own frame, hence all of its callers'. On an accelerator an operator imports nothing; its
    meta kernel may, in the middle of the program's step.
    """
    return after_import("torch._dynamo", lambda module: gc.collect())
