"""Sets up the sandbox in processes that multiprocessing starts afresh (``spawn``, ``forkserver``).

A forked process inherits it from its parent. A fresh one starts by unpickling its preparation data
(``get_preparation_data``), before any code of the program runs, so the sandbox is installed by unpickling.
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

_MULTIPROCESSING_PACKAGES = ("multiprocessing", "multiprocess")
"""The standard library's package, and its dill-based copy, which datasets uses."""
_USES = "accelerators-used"
"""File in the scratch folder in which these processes record where they used an accelerator."""
_ATTACH_CODE = (  # remove gonogo's folder from sys.path at once: the parent's path follows
    "import sys; sys.path.append({root!r}); from gonogo.virtual.sandbox.spawned import attach; sys.path.pop(); "
    "attach({scratch!r})"
)


class _SandboxAttachment:
    """Installs the sandbox when unpickled, in a Python that may not have gonogo installed."""

    def __init__(self, scratch: str) -> None:
        self.scratch = scratch

    def __reduce__(self) -> Any:
        root = str(Path(gonogo.__file__).resolve().parent.parent)
        return exec, (_ATTACH_CODE.format(root=root, scratch=self.scratch),)


def install(scratch: str) -> Callable[[], None]:
    """Set up the sandbox in freshly started processes as well; returns the undo."""
    patches = Patches()

    def share(module: ModuleType) -> None:
        prepare: Any = vars(module)["get_preparation_data"]

        def get_preparation_data(name: str) -> dict[str, Any]:
            return {"gonogo": _SandboxAttachment(scratch), **prepare(name)}

        patches.set(module, "get_preparation_data", get_preparation_data)

    for package in _MULTIPROCESSING_PACKAGES:
        patches.on_undo(after_import(f"{package}.spawn", share))
    return patches.undo


def attach(scratch: str) -> None:
    """Permanently install the sandbox of the parent process in this one."""
    network.install()
    trackers.install()
    hub.install(lambda note: None)
    file_copies.install()
    probe_reporting.install()
    install(scratch)
    after_import("torch", functools.partial(_record_uses, os.path.join(scratch, _USES)))


def accelerator_uses(scratch: str) -> list[str]:
    """``file:line`` of every place where freshly started processes used an accelerator or a process group.

    Only the program's own process has virtual ones: such a process would fail, or compute on the CPU.
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
