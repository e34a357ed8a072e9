"""Python's cycle collector while frameworks are imported: it would walk all that they make, again and again.

From the first parameter on it works as in any program, since it frees tensors, and what it frees when is counted.
"""

from __future__ import annotations

import gc

_USUAL = gc.get_threshold()
_IMPORT_THRESHOLDS = (100_000, 50, 100)


def raise_gc_thresholds() -> None:
    """Have what is made from now on be walked seldom."""
    gc.set_threshold(*_IMPORT_THRESHOLDS)


def restore_gc_thresholds() -> None:
    """What was imported stays, and is never walked again; the rest is, as often as usual. The first call counts."""
    if gc.get_threshold() == _IMPORT_THRESHOLDS:
        gc.freeze()
        gc.set_threshold(*_USUAL)
