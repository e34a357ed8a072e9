"""Processes that multiprocessing starts afresh (``spawn``, ``forkserver``) get what a kernel can't give them, too.

A process that is forked has it from its parent. One that is started afresh begins by unpickling what it has to know
(``get_preparation_data``), before anything of the program's runs: it is put in place by that.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import gonogo
from gonogo.virtual.lookups import probe_reporting
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.sandbox import file_copies, hub, network, trackers

_PACKAGES = ("multiprocessing", "multiprocess")
"""The standard library's, and the copy of it that pickles by dill, which datasets uses."""
_USES = "accelerators-used"
"""The file in scratch in which they write where they used an accelerator."""
_ATTACH_CODE = (  # gonogo's folder is left on sys.path no longer than that: the parent's path comes next
    "import sys; sys.path.append({root!r}); from gonogo.virtual.sandbox.spawned import attach; sys.path.pop(); "
    "attach({scratch!r})"
)


class _SandboxAttachment:
    """Puts everything in place where it is unpickled, in a Python that may not have gonogo installed."""

    def __init__(self, scratch: str) -> None:
        self.scratch = scratch

    def __reduce__(self) -> Any:
        root = str(Path(gonogo.__file__).resolve().parent.parent)
        return exec, (_ATTACH_CODE.format(root=root, scratch=self.scratch),)


def install(scratch: str) -> Callable[[], None]:
    """Have processes that are started afresh answered as this one is; returns the undo."""
    patches = Patches()

    def share(module: ModuleType) -> None:
        prepare: Any = vars(module)["get_preparation_data"]

        def get_preparation_data(name: str) -> dict[str, Any]:
            return {"gonogo": _SandboxAttachment(scratch), **prepare(name)}

        patches.set(module, "get_preparation_data", get_preparation_data)

    for package in _PACKAGES:
        patches.on_undo(after_import(f"{package}.spawn", share))
    return patches.undo


def attach(scratch: str) -> None:
    """Put in place here, for good, what the process that started this one has."""
    network.install()
    trackers.install()
    hub.install(lambda note: None)
    file_copies.install()
    probe_reporting.install()
    install(scratch)
    after_import("torch", functools.partial(_record_uses, os.path.join(scratch, _USES)))


def accelerator_uses(scratch: str) -> list[str]:
    """``file:line`` of where processes that were started afresh used an accelerator, or a process group.

    Only the program's own process has virtual ones: such a process fails, or computes on the CPU.
    """
    try:
        return sorted(set(Path(scratch, _USES).read_text(encoding="utf-8", errors="replace").splitlines()))
    except FileNotFoundError:
        return []


def _record_uses(file: str, torch: Any) -> None:
    def noting(function: Any) -> Any:
        @functools.wraps(function)
        def noted(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_code.co_filename.startswith(os.path.dirname(torch.__file__)):
                frame = frame.f_back
            with open(file, "a", encoding="utf-8", errors="replace") as stream:
                stream.write(f"{frame.f_code.co_filename}:{frame.f_lineno}\n")
            return function(*args, **kwargs)

        return noted

    torch.cuda._lazy_init = noting(torch.cuda._lazy_init)
    if torch.distributed.is_available():
        torch.distributed.init_process_group = noting(torch.distributed.init_process_group)
