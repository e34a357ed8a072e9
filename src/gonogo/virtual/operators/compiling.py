"""``torch.compile``: compiled functions run as plain Python, and ``torch.compile`` itself is deferred to the first
call.

Libraries decorate functions that a program may never call (DeepSpeed its Muon optimizer's), and each such decorator
imports the whole compiler, which takes more than a second. Importing it also runs operators that are not the
program's: on virtual tensors, those would in turn import the half-imported compiler (seen with torch 2.8). Finally,
it checks its stand-ins against ``Tensor.__new__``, which DeepSpeed replaces inside ``zero.Init``; virtual operators
need the compiler there, although a real run does not. So it is imported in advance.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn

from gonogo.evidence.rehearsal.record import UNCOMPILED_ASSUMPTION
from gonogo.finding import Text
from gonogo.virtual import private
from gonogo.virtual.dispatch.kernel_checks import CompilationState
from gonogo.virtual.operators import compiled_regions, whole_graphs
from gonogo.virtual.patching.after_import import after_import, import_within
from gonogo.virtual.patching.patches import Patches

_ZERO_INIT_MODULE = "deepspeed.runtime.zero.partition_parameters"


_GLOBAL_HOOK_WARNING = r"Using `torch\.compile\(module\)` when there are global hooks on modules"
"""The warning of a compiled module about the global module hooks of the rehearsal."""
_ASSUMED = Text(UNCOMPILED_ASSUMPTION, "torch.compile 的代码能够编译，且不比未编译时（即排练的方式）占更多显存")


class CompiledRegion:
    """Whether compiled code runs: of a function, or, once the program has compiled a whole module, anywhere."""

    _depth: ClassVar[int] = 0
    of_modules: ClassVar[bool] = False

    @classmethod
    def is_running(cls) -> bool:
        """Whether code that is running now was compiled."""
        return cls.of_modules or cls._depth > 0

    @classmethod
    def wrap_function(cls, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, as the code of a region."""

        @functools.wraps(function)
        def run_in_region(*args: Any, **kwargs: Any) -> Any:
            cls._depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                cls._depth -= 1

        return run_in_region


def install(assume: Callable[[Text], object] = lambda what: None) -> Callable[[], None]:
    """Defer ``torch.compile`` for functions compiled with the default compiler; returns the undo.

    ``assume`` is called when compiled code first runs: kernels can't be compiled for a device that doesn't exist.
    """
    patches = Patches()
    compiles = "1" not in (os.environ.get("TORCHDYNAMO_DISABLE"), os.environ.get("TORCH_COMPILE_DISABLE"))
    whole = whole_graphs.install(patches)
    patches.set_item(os.environ, "TORCHDYNAMO_DISABLE", "1")
    warnings.filterwarnings("ignore", message=_GLOBAL_HOOK_WARNING)
    patches.on_undo(import_within(private.COMPILER, private.without_dispatch_modes))
    patches.on_undo(after_import(_ZERO_INIT_MODULE, lambda _: importlib.import_module(private.COMPILER)))
    patches.set(CompilationState, "anything", False)
    patches.set(CompiledRegion, "of_modules", False)
    real = torch.compile
    wrapped: Callable[..., Any] = torch.compiler.disable

    def note_compilation() -> None:
        assume(_ASSUMED)
        CompilationState.anything = True

    @functools.wraps(real)
    def compile_(model: Any = None, **options: Any) -> Any:
        made = compile_or_defer(model, options)
        is_whole = compiles and model is not None and options.get("fullgraph") and not options.get("disable")
        return whole(model, made) if is_whole else made

    def compile_or_defer(model: Any, options: dict[str, Any]) -> Any:
        if not inspect.isfunction(model) or set(options) - {"dynamic", "fullgraph"}:
            if model is not None:
                note_compilation()
            result = real(model, **options)
            if isinstance(model, nn.Module):
                CompiledRegion.of_modules = True
            elif model is not None and not options.get("disable"):
                return CompiledRegion.wrap_function(result)
            # With the compiler disabled it is the bare module; in a real run it is wrapped (names with _orig_mod).
            return wrapped(model) if isinstance(model, nn.Module) and result is model else result

        @functools.cache
        def compile_once() -> Any:
            note_compilation()
            return real(model, **options)

        @functools.wraps(model)
        def call_compiled(*args: Any, **kwargs: Any) -> Any:
            return (
                compiled_regions.run_compiled_region(compile_once(), args, kwargs)
                if compiles
                else compile_once()(*args, **kwargs)
            )

        return CompiledRegion.wrap_function(call_compiled)

    patches.set(torch, "compile", compile_)
    return patches.undo


def install_scripting() -> Callable[[], None]:
    """Make ``torch.jit.script`` return functions and classes unchanged, so that they run as Python, with the same
    operators.

    Modules are still compiled, since they may be saved. TorchScript recognizes torch's functions by identity, so the
    replacements made here in torch's own namespaces are registered with it; those in Python code further down are
    not, and it would reject them.

    Returns the undo.
    """
    patches = Patches()
    script = torch.jit.script

    @functools.wraps(script)
    def script_(obj: Any, *args: Any, **options: Any) -> Any:
        if inspect.isfunction(obj) or (inspect.isclass(obj) and not issubclass(obj, torch.nn.Module)):
            return obj  # for a class, `script` also returns the class itself
        private.register_replacements_for_scripting()
        return script(obj, *args, **options)

    patches.set(torch.jit, "script", script_)
    return patches.undo
