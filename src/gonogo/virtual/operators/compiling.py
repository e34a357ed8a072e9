"""``torch.compile``: what is compiled is run as it is written, and of a function begun when it is first called.

Libraries decorate functions that a program may never call (DeepSpeed its Muon optimizer's), and each such decorator
imports all of the compiler, which takes more than a second. Importing it runs operators, which are none of the
program's: virtual ones would in turn import the compiler, half imported as it is (seen with torch 2.8). It also holds
its own stand-ins against ``Tensor.__new__``, which DeepSpeed replaces within ``zero.Init``; virtual operators need the
compiler there first, where a real run does not need it at all. So it is imported before.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gonogo.finding import Text, translated
from gonogo.virtual import private
from gonogo.virtual.dispatch.kernel_checks import CompilationState
from gonogo.virtual.operators import compiled_regions, whole_graphs
from gonogo.virtual.patching.after_import import after_import, import_within
from gonogo.virtual.patching.patches import Patches

_ZERO_INIT_MODULE = "deepspeed.runtime.zero.partition_parameters"


_GLOBAL_HOOK_WARNING = r"Using `torch\.compile\(module\)` when there are global hooks on modules"
"""What a compiled module says of hooks that follow the rehearsal's modules."""
UNCOMPILED_ASSUMPTION = translated(
    "what torch.compile compiles runs as it is written: it compiles, and takes no more memory"
)


def install(assume: Callable[[Text], object] = lambda what: None) -> Callable[[], None]:
    """Put ``torch.compile`` off for functions that are compiled as usual, by the default compiler; returns the undo.

    ``assume`` is told when compiled code is run: kernels can't be compiled for a device that isn't there.
    """
    patches = Patches()
    compiles = "1" not in (os.environ.get("TORCHDYNAMO_DISABLE"), os.environ.get("TORCH_COMPILE_DISABLE"))
    whole = whole_graphs.install(patches)
    patches.item(os.environ, "TORCHDYNAMO_DISABLE", "1")
    warnings.filterwarnings("ignore", message=_GLOBAL_HOOK_WARNING)
    patches.on_undo(import_within(private.COMPILER, private.modes_off))
    patches.on_undo(after_import(_ZERO_INIT_MODULE, lambda _: importlib.import_module(private.COMPILER)))
    patches.set(CompilationState, "anything", False)
    real = torch.compile
    wrapped: Callable[..., Any] = torch.compiler.disable

    def begun() -> None:
        assume(UNCOMPILED_ASSUMPTION)
        CompilationState.anything = True

    @functools.wraps(real)
    def compile_(model: Any = None, **options: Any) -> Any:
        made = compiled(model, options)
        is_whole = compiles and model is not None and options.get("fullgraph") and not options.get("disable")
        return whole(model, made) if is_whole else made

    def compiled(model: Any, options: dict[str, Any]) -> Any:
        if not inspect.isfunction(model) or set(options) - {"dynamic", "fullgraph"}:
            if model is not None:
                begun()
            result = real(model, **options)
            # With the compiler turned off it is the bare module; a run has it wrapped, under names with _orig_mod.
            return wrapped(model) if isinstance(model, nn.Module) and result is model else result

        @functools.cache
        def made() -> Any:
            begun()
            return real(model, **options)

        @functools.wraps(model)
        def called(*args: Any, **kwargs: Any) -> Any:
            return compiled_regions.run(made(), args, kwargs) if compiles else made()(*args, **kwargs)

        return called

    patches.set(torch, "compile", compile_)
    return patches.undo


def install_scripting() -> Callable[[], None]:
    """``torch.jit.script`` of a function or class: it is run as the Python that it is, with the same operators.

    Modules are still compiled: what is saved of them has to be. TorchScript knows torch's functions by their identity:
    it is told of those that stand replaced here, of torch's own namespaces; what is written in Python further down may
    call others, which it would refuse.

    Leave functions and classes uncompiled; returns the undo.
    """
    patches = Patches()
    script = torch.jit.script

    @functools.wraps(script)
    def script_(obj: Any, *args: Any, **options: Any) -> Any:
        if inspect.isfunction(obj) or (inspect.isclass(obj) and not issubclass(obj, torch.nn.Module)):
            return obj  # of a class, `script` returns the class itself, too
        private.register_replacements_for_scripting()
        return script(obj, *args, **options)

    patches.set(torch.jit, "script", script_)
    return patches.undo
