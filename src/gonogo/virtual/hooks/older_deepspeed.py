"""Restores names that an older DeepSpeed imports, but that newer versions of torch or numpy no longer have.

A name is restored only if the installed DeepSpeed imports it, and is recorded as an assumption. Tested with DeepSpeed
0.14.0 to 0.16.5 on torch 2.13 and numpy 2.4.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from gonogo.finding import Text, translated
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches

Assume = Callable[[Text], object]

_ACCELERATOR = "deepspeed.accelerator.real_accelerator"
_ELASTIC = "torch.distributed.elastic.agent.server.api"


class _MovedName(NamedTuple):
    """A name that DeepSpeed imports and newer torch releases no longer have, and how to make it."""

    importer: str
    """The file of DeepSpeed that imports the name."""
    module: str
    name: str
    until: str
    """The newest DeepSpeed version that imports it."""
    make: Callable[[], Any]


def _socket_with_port() -> socket.socket:
    """A socket bound to a free local port, as torch's former ``_get_socket_with_port`` created it."""
    for family, kind, protocol, _, _ in socket.getaddrinfo("localhost", None, socket.AF_UNSPEC, socket.SOCK_STREAM):
        found = socket.socket(family, kind, protocol)
        try:
            found.bind(("localhost", 0))
        except OSError:
            found.close()
        else:
            found.listen(0)
            return found
    raise RuntimeError("Failed to create a socket")


MOVED_NAMES = (
    _MovedName("elasticity/elastic_agent.py", _ELASTIC, "log", "0.14.0", lambda: logging.getLogger(_ELASTIC)),
    _MovedName("elasticity/elastic_agent.py", _ELASTIC, "_get_socket_with_port", "0.14.2", lambda: _socket_with_port),
    _MovedName("autotuning/scheduler.py", "numpy", "BUFSIZE", "0.14.3", lambda: 8192),
)


class _BeforeImportFinder(MetaPathFinder):
    """A finder that locates no module itself, but runs an action before DeepSpeed is executed."""

    def __init__(self, action: Callable[[Path], None]) -> None:
        self._action = action
        self._searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "deepspeed" or self._searching:
            return None
        self._searching = True
        try:
            spec = find_spec(name)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None and spec.origin is not None:
            spec.loader = _HookedLoader(spec.loader, functools.partial(self._action, Path(spec.origin).parent))
        return spec


class _HookedLoader(Loader):
    """The module's own loader, preceded by an action."""

    def __init__(self, inner: Loader, action: Callable[[], None]) -> None:
        self._inner = inner
        self._before = action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._before()
        self._inner.exec_module(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def install(assume: Assume) -> Callable[[], None]:
    """Wait for the import of DeepSpeed; returns the undo. ``assume`` is told which names were restored."""
    patches = Patches()

    def restore_missing_names(folder: Path) -> None:
        for moved in _missing_names(folder):
            patches.set(importlib.import_module(moved.module), moved.name, moved.make())
            assume(
                translated("{name} exists, as in older releases: this DeepSpeed imports it").format(
                    name=f"{moved.module}.{moved.name}"
                )
            )

    patches.on_undo(after_import(_ACCELERATOR, _set_accelerator))
    finder = _BeforeImportFinder(restore_missing_names)
    sys.meta_path.insert(0, finder)
    patches.on_undo(lambda: sys.meta_path.remove(finder))
    return patches.undo


def _set_accelerator(module: ModuleType) -> None:
    """Set the accelerator for DeepSpeed up to 0.12, which recurses endlessly if DS_ACCELERATOR is ``cuda``."""
    asks_itself = "elif is_current_accelerator_supported()" in inspect.getsource(module.get_accelerator)
    if asks_itself and os.environ.get("DS_ACCELERATOR") == "cuda":
        accelerators = importlib.import_module("deepspeed.accelerator.cuda_accelerator")
        vars(module)["ds_accelerator"] = accelerators.CUDA_Accelerator()


def _missing_names(folder: Path) -> Iterator[_MovedName]:
    """The names that the DeepSpeed in ``folder`` imports from modules that no longer have them."""
    for moved in MOVED_NAMES:
        importer = folder / moved.importer
        if not importer.is_file():
            continue
        pattern = rf"^from {re.escape(moved.module)} import [^(\n]*\b{moved.name}\b"
        is_imported = re.search(pattern, importer.read_text(encoding="utf-8"), re.MULTILINE)
        if is_imported and not hasattr(importlib.import_module(moved.module), moved.name):
            yield moved
