"""Ray's processes are no ranks of a rehearsal: the program is rehearsed until it starts or joins a Ray cluster.

What it does before that is its own code, such as the check of its configuration, and may fail. Ray's workers are
processes that Ray starts through daemons of its own: without virtual accelerators, they would fail or compute on the
CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gonogo.virtual.hooks.after_import import after_import
from gonogo.virtual.hooks.patching import Patches
from gonogo.virtual.mode import UnsupportedOperator


def install() -> Callable[[], None]:
    """Refuse ``ray.init``, which Ray itself calls before the first task, too; returns the undo."""
    patches = Patches()

    def replace(ray: Any) -> None:
        patches.set(ray, "init", init)

    patches.on_undo(after_import("ray", replace))
    return patches.undo


def init(*_: Any, **__: Any) -> Any:
    """In the place of ``ray.init``. Raises UnsupportedOperator."""
    raise UnsupportedOperator(
        "ray.init",
        "workers that Ray starts have no virtual accelerators. What the program did before it is rehearsed; "
        "`gonogo check` reads the command's options, `gonogo diagnose` the log of a run",
    )
