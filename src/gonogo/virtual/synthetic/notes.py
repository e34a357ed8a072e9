"""Reports the program's assumptions to its rehearsal, or prints them outside of one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gonogo.finding import Text


def record_assumption(assumption: Text) -> None:
    """Record an assumption."""
    from gonogo.virtual.tensor import VirtualTensor

    mode = VirtualTensor.virtual_mode
    if mode is None:
        print(f"assumed: {assumption.en}", file=sys.stderr, flush=True)
    else:
        mode.ledger.assume(assumption)


@contextmanager
def ignoring_host_peak() -> Iterator[None]:
    """Ignore the host memory peak inside the context, which is not part of the training and is released
    afterwards."""
    import gc

    from gonogo.virtual.tensor import CPU, VirtualTensor

    mode = VirtualTensor.virtual_mode
    if mode is None:
        yield
        return
    host = mode.memory.device(CPU)
    with host.without_peak_update():
        try:
            yield
        finally:
            gc.collect()
