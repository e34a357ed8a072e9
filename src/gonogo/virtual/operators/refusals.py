"""Features that can't be rehearsed, rejected by name when first used: going on would give wrong results.

To add one: a line in :data:`_UNSUPPORTED_FUNCTIONS`. A package is patched only when the program imports it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from gonogo.finding import Text, translated
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.unsupported import UnsupportedOperator


class _UnsupportedFunction(NamedTuple):
    module: str
    name: str
    """A function, or ``Class.method``."""
    what: str
    why: Text
    unless_together: bool = False
    """Reject only if some ranks are not rehearsed: ranks rehearsed together can exchange data."""


_UNSUPPORTED_FUNCTIONS = (
    _UnsupportedFunction(
        "deepspeed.runtime.pipe.engine",
        "PipelineEngine.__init__",
        "DeepSpeed's PipelineModule",
        translated("the shapes that a stage receives are known only to the rank that sends them: add --ranks all"),
        unless_together=True,
    ),
    _UnsupportedFunction(
        "deepspeed.runtime.superoffload.superoffload_stage3",
        "SuperOffloadOptimizer_Stage3.__init__",
        "DeepSpeed's SuperOffload",
        translated("SuperOffload's CPU optimizer runs in a process of its own, which is not rehearsed"),
    ),
    _UnsupportedFunction(
        "deepspeed.runtime.zenflow.zenflow_stage_1_and_2",
        "ZenFlowZeroOptimizer.__init__",
        "DeepSpeed's ZenFlow",
        translated("ZenFlow selects gradients by their values, which are not known"),
    ),
    _UnsupportedFunction(
        "torch.nn.modules.lazy",
        "LazyModuleMixin.__init__",
        "torch's lazy modules",
        translated(
            "lazy parameters change their class once their shapes are known, which a rehearsal does not support"
        ),
    ),
)


def install(*, all_ranks_rehearsed: bool) -> Callable[[], None]:
    """Reject them from now on; ``all_ranks_rehearsed``: all ranks of the launch are rehearsed. Returns the undo."""
    patches = Patches()
    for refused in _UNSUPPORTED_FUNCTIONS:
        if refused.unless_together and all_ranks_rehearsed:
            continue
        patches.on_undo(after_import(refused.module, functools.partial(_patch_unsupported, patches, refused)))
    return patches.undo


def _patch_unsupported(patches: Patches, refusal: _UnsupportedFunction, module: ModuleType) -> None:
    owner: Any = module
    *path, name = refusal.name.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def raise_unsupported(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperator(refusal.what, refusal.why)

    patches.set(owner, name, raise_unsupported)
