"""What can't be rehearsed, refused by its name where it begins: a program that goes on would show something else.

To add one: a line in :data:`_REFUSED`. A package is touched only when the program imports it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from gonogo.finding import Text, translated
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.unsupported import UnsupportedOperator


class _Refused(NamedTuple):
    module: str
    name: str
    """Function, or Class.method."""
    what: str
    why: Text
    unless_together: bool = False
    """Only where some of the ranks are not rehearsed: together they tell each other."""


_INDUCTOR_KERNEL = translated("it is a kernel that TorchInductor generates for the device")
_REFUSED = (
    _Refused(
        "deepspeed.runtime.pipe.engine",
        "PipelineEngine.__init__",
        "DeepSpeed's PipelineModule",
        translated("the shapes that a stage receives are known only to the rank that sends them: add --ranks all"),
        unless_together=True,
    ),
    _Refused(
        "deepspeed.runtime.superoffload.superoffload_stage3",
        "SuperOffloadOptimizer_Stage3.__init__",
        "DeepSpeed's SuperOffload",
        translated("its CPU optimizer works in its own process"),
    ),
    _Refused(
        "deepspeed.runtime.zenflow.zenflow_stage_1_and_2",
        "ZenFlowZeroOptimizer.__init__",
        "DeepSpeed's ZenFlow",
        translated("which gradients it updates at once depends on their values"),
    ),
    _Refused(
        "torch.nn.modules.lazy",
        "LazyModuleMixin.__init__",
        "torch's lazy modules",
        translated("their parameters change class when their shapes are known"),
    ),
    _Refused("torch.nn.attention.flex_attention", "create_block_mask", "torch's flex_attention", _INDUCTOR_KERNEL),
    _Refused("torch.nn.attention.flex_attention", "flex_attention", "torch's flex_attention", _INDUCTOR_KERNEL),
)
_FUNCTIONS_ON_TENSORS = "torch.nn.attention.flex_attention"
"""Refused on an accelerator only."""


def install(*, together: bool) -> Callable[[], None]:
    """Refuse them from now on; ``together``: all ranks of the launch are rehearsed. Returns the undo."""
    patches = Patches()
    for refused in _REFUSED:
        if refused.unless_together and together:
            continue
        patches.on_undo(after_import(refused.module, functools.partial(_refuse, patches, refused)))
    return patches.undo


def _refuse(patches: Patches, refused: _Refused, module: ModuleType) -> None:
    owner: Any = module
    *path, name = refused.name.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if refused.module == _FUNCTIONS_ON_TENSORS and not _is_on_accelerator(args, kwargs):
            return original(*args, **kwargs)
        raise UnsupportedOperator(refused.what, refused.why)

    patches.set(owner, name, refuse)


def _is_on_accelerator(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a tensor among the arguments, or the device that is asked for, is an accelerator's."""
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, VirtualTensor)]
    wanted = str(kwargs.get("device", "cuda"))
    return any(not tensor.is_cpu for tensor in tensors) or (not tensors and not wanted.startswith("cpu"))
