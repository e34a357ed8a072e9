"""Tunes Python's garbage collector for the import of frameworks, whose objects it would traverse over and over.

From the first parameter or loaded file on it works as in any program, since it frees tensors, and when they are freed
is measured.
"""

from __future__ import annotations

import gc

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
