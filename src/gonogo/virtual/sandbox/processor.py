"""The host's processor: DeepSpeed's CPU optimizers ask for its maker, through a process that takes over a second.

The answer would be of this machine, not of the one that the run will have: none is given.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches


def install() -> Callable[[], None]:
    """Have ``cpuinfo.get_cpu_info`` answer at once that the maker is not known; returns the undo."""
    patches = Patches()

    def replace(module: ModuleType) -> None:
        patches.set(module, "get_cpu_info", lambda: {"vendor_id_raw": "unknown", "vendor_id": "unknown"})

    patches.on_undo(after_import("cpuinfo", replace))
    return patches.undo
