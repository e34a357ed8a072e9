"""Records paths that a Python program only probes, without opening them, along with its other lookups.

``os.stat`` and the like raise no audit event, so they are wrapped. Directory listings by the import system are
marked, since they only look for modules and say nothing about other files in a folder.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import os
import posix
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from gonogo.virtual.lookups.failed_lookups import record_probe
from gonogo.virtual.patching.patches import Patches, patch_os
from gonogo.virtual.protocol.plan import MODULE_LISTING_SUFFIX
from gonogo.virtual.stack import OURS, is_standard_library


def install() -> Callable[[], None]:
    """Record the probes of this process and of its forks; returns the undo."""
    patches = Patches()
    patch_os(patches, {name: _wrap_probe(getattr(os, name)) for name in ("stat", "lstat", "access", "readlink")})
    _mark_import_listings(patches)
    return patches.undo


def _wrap_probe(probe_function: Any) -> Any:
    @functools.wraps(probe_function)
    def report_and_probe(path: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(path, int) and kwargs.get("dir_fd") is None and not _is_gonogo_frame(sys._getframe(1)):
            with contextlib.suppress(TypeError):  # the original call raises it
                record_probe(os.fsdecode(path))
        return probe_function(path, *args, **kwargs)

    return report_and_probe


def _is_gonogo_frame(frame: FrameType | None) -> bool:
    """Whether gonogo itself probes, as where a replaced ``load_dataset`` looks whether a name is a local folder.

    The program does not learn the answer. Paths that gonogo finds missing for the program are passed to
    :func:`record_probe`.
    """
    while frame is not None and _is_python_installation_path(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(OURS)


def _is_python_installation_path(path: str) -> bool:
    return path.startswith("<frozen") or (not path.startswith("<") and is_standard_library(path))


def _mark_import_listings(patches: Patches) -> None:
    """Mark the import system's directory listings, whose result doesn't depend on files that are not modules."""
    from importlib import _bootstrap_external as machinery

    def list_modules(path: str) -> list[str]:
        return posix.listdir(path + MODULE_LISTING_SUFFIX)

    patches.set(machinery, "_os", _PatchedModule(posix, listdir=list_modules))
    patches.set(importlib.metadata, "os", _PatchedModule(os, listdir=list_modules))
    importlib.invalidate_caches()


class _PatchedModule:
    """A module with some of its attributes replaced."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
