"""Triton where it isn't installed: found by programs that need it, since torch's GPU builds on Linux include it.

A CPU build of torch does not require Triton; every GPU build on Linux does. Code with a fallback (an import within
``try``, a call of ``find_spec``) takes the fallback as before; if the import would end the program, Triton's
interface is found in ``stand_ins/with_triton``, and launches are skipped as with the real package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from gonogo.finding import Text, translated
from gonogo.virtual.kernels.needed_import import is_needed_import
from gonogo.virtual.patching.patches import Patches

_STAND_IN_FOLDER = str(Path(__file__).parent.parent / "stand_ins" / "with_triton")
_INSTALLED_ASSUMPTION = translated("Triton is installed on the machine, as torch's builds for GPUs require it")


def install(patches: Patches, assume: Callable[[Text], object]) -> None:
    """Add the finder, after all others."""
    finder = _TritonFinder(assume)
    sys.meta_path.append(finder)
    patches.on_undo(lambda: sys.meta_path.remove(finder))


class _TritonFinder:
    """Finds gonogo's ``triton`` for an import whose failure no code would handle."""

    def __init__(self, assume: Callable[[Text], object]) -> None:
        self._assume = assume

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the stand-in, or None."""
        if name != "triton" or not is_needed_import(sys._getframe(1)):
            return None
        self._assume(_INSTALLED_ASSUMPTION)
        return PathFinder.find_spec(name, [_STAND_IN_FOLDER])
