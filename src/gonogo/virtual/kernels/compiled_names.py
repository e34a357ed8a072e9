"""The names of a module that is compiled with nvcc and can't be had here: each stops a rehearsal once it is called."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from gonogo.finding import translated
from gonogo.virtual.kernels.names_only import unimplemented_function

_COMPILED = translated("it is compiled with nvcc, which is not available here, and gonogo has no stand-in for it")


def compiled_names(module: str, names: Collection[str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of the module: a function for each of its names, and no others."""

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        return unimplemented_function(f"{module}.{name}", _COMPILED)

    return __getattr__
