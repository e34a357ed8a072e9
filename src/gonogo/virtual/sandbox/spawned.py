"""Processes that multiprocessing starts afresh (``spawn``, ``forkserver``) get the program's view of files, too.

A process that is forked has it from its parent. One that is started afresh begins by unpickling what it has to know
(``get_preparation_data``), before anything of the program's runs: the view is put in place by that.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gonogo
from gonogo.virtual.hooks.after_import import after_import
from gonogo.virtual.hooks.patching import Patches
from gonogo.virtual.sandbox import filesystem, network
from gonogo.virtual.sandbox.overlay import Overlay
from gonogo.virtual.sandbox.overlay_view import shared_with_others

_PACKAGES = ("multiprocessing", "multiprocess")
"""The standard library's, and the copy of it that pickles by dill, which datasets uses."""
_TOLD = "/asked"
"""The file in scratch in which they say so."""
_ATTACH = (  # gonogo's folder is left on sys.path no longer than that: the parent's path comes next
    "import sys; sys.path.append({root!r}); from gonogo.virtual.sandbox.spawned import attach; sys.path.pop(); "
    "attach({scratch!r}, {limit!r}, {passed!r})"
)


class _View:
    """Is put in place where it is unpickled, in a Python that may not have gonogo installed."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay

    def __reduce__(self) -> Any:
        root = str(Path(gonogo.__file__).resolve().parent.parent)
        view = self.overlay
        return exec, (_ATTACH.format(root=root, scratch=view.scratch, limit=view.limit_bytes, passed=view.passed),)


def install(overlay: Overlay) -> Patches:
    """Have processes that are started afresh read and write through the overlay, and reach no network."""
    patches = Patches()

    def share(module: ModuleType) -> None:
        prepare: Any = vars(module)["get_preparation_data"]

        def get_preparation_data(name: str) -> dict[str, Any]:
            shared_with_others()
            return {"gonogo": _View(overlay), **prepare(name)}

        patches.set(module, "get_preparation_data", get_preparation_data)

    for package in _PACKAGES:
        patches.on_undo(after_import(f"{package}.spawn", share))
    return patches


def attach(scratch: str, limit_bytes: int, passed: tuple[str, ...]) -> None:
    """Put the view of the process that started this one in place here, for good."""
    shared_with_others()
    network.install()
    overlay = Overlay(scratch, limit_bytes=limit_bytes, passed=passed)
    filesystem.install(overlay)
    install(overlay)
    after_import("torch", functools.partial(_tell_of_accelerators, scratch + _TOLD))


def asked_for_accelerators(scratch: str) -> list[str]:
    """``file:line`` of where processes that were started afresh asked for an accelerator, or for a process group.

    Only the program's own process has virtual ones: such a process fails, or computes on the CPU.
    """
    try:
        return sorted(set(Path(scratch + _TOLD).read_text(encoding="utf-8", errors="replace").splitlines()))
    except FileNotFoundError:
        return []


def _tell_of_accelerators(file: str, torch: Any) -> None:
    def telling(asks: Any) -> Any:
        @functools.wraps(asks)
        def asks_and_tells(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_code.co_filename.startswith(os.path.dirname(torch.__file__)):
                frame = frame.f_back
            with open(file, "a", encoding="utf-8", errors="replace") as stream:
                stream.write(f"{frame.f_code.co_filename}:{frame.f_lineno}\n")
            return asks(*args, **kwargs)

        return asks_and_tells

    torch.cuda._lazy_init = telling(torch.cuda._lazy_init)
    if torch.distributed.is_available():
        torch.distributed.init_process_group = telling(torch.distributed.init_process_group)
