"""The world outside the program, shut off or shown otherwise: its files, the network, weights, and what it saves."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from gonogo.virtual import filesystem, network, saving, weights
from gonogo.virtual.overlay import Overlay, new_overlay
from gonogo.virtual.plan import WorkerPlan
from gonogo.virtual.write_guard import guard_writes


def install(plan: WorkerPlan, tell: Callable[[str], None], *, guard: bool) -> tuple[Overlay, Callable[[], None]]:
    """Put all of it in place for one worker; returns the overlay, and what takes it away.

    ``guard``: have the kernel refuse every other write to this process, for good. ``tell`` gets a sentence for each
    thing worth telling. Raises ScratchFull where the scratch folder has no room.
    """
    own = (plan.record, f"{plan.record}.partial", plan.progress)
    overlay = new_overlay(plan.scratch, passed=own)
    hosts: set[str] = set()

    def refused(host: str) -> None:
        if host not in hosts:
            hosts.add(host)
            tell(network.REFUSED.format(host=host).en)

    def written(path: str, nbytes: int, tensors: int) -> None:
        if not path.startswith(overlay.scratch):
            tell(f"wrote {path}: {nbytes:,} bytes, {tensors} tensors (kept as its header only)")

    sys.stdout.flush()
    installed = [
        filesystem.install(overlay),
        network.install(refused),
        weights.install(overlay, tell),
        saving.install(written),
    ]
    if guard and not guard_writes({overlay.scratch, *(os.path.dirname(os.path.realpath(path)) for path in own)}):
        tell("this kernel has no Landlock: compiled code and child processes of the program could write real files")

    def undo() -> None:
        for patches in reversed(installed):
            patches.undo()

    return overlay, undo
