"""Replaces attributes in other packages' modules, and restores them."""

from __future__ import annotations

import functools
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

_MISSING_ATTRIBUTE = object()


class Patches:
    """Replacements of attributes; :meth:`undo` restores everything, last first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace ``owner.name``; an inherited attribute is shadowed until :meth:`undo`."""
        before = vars(owner).get(name, _MISSING_ATTRIBUTE)

        def restore_attribute() -> None:
            if before is _MISSING_ATTRIBUTE:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        setattr(owner, name, value)
        self._undo.append(restore_attribute)

    def set_item(self, mapping: Any, key: Any, value: Any) -> None:
        """Replace ``mapping[key]``, e.g. an environment variable."""
        before = mapping.get(key, _MISSING_ATTRIBUTE)

        def restore_item() -> None:
            if before is _MISSING_ATTRIBUTE:
                mapping.pop(key, None)
            else:
                mapping[key] = before

        mapping[key] = value
        self._undo.append(restore_item)

    def on_undo(self, action: Callable[[], None]) -> None:
        """Register ``action`` to be run by :meth:`undo`."""
        self._undo.append(action)

    def replace_everywhere(
        self, replacements: Iterable[tuple[Any, Any]], *, excluded_modules: Iterable[ModuleType] = ()
    ) -> None:
        """Replace objects in the namespaces of all loaded modules, such as those that did ``from os import stat``.

        ``replacements`` are pairs (original, replacement). gonogo's own modules and ``excluded_modules`` are skipped.
        """
        replacements = list(replacements)
        by_identity = {id(original): replacement for original, replacement in replacements}
        kinds = (*{type(original) for original, _ in replacements},)
        spared = {id(module) for module in excluded_modules}
        for path, module in list(sys.modules.copy().items()):  # a garbage collection may trigger imports
            if not isinstance(module, ModuleType) or id(module) in spared or path.partition(".")[0] == "gonogo":
                continue
            there = list(vars(module).items())  # about 150 000 attributes; other threads may import meanwhile
            # Each id() is an event for audit hooks, among them gonogo's: only for what may be one of the originals.
            names = [name for name, value in there if type(value) in kinds and id(value) in by_identity]
            for name in names:
                self.set(module, name, by_identity[id(vars(module)[name])])

    def undo(self) -> None:
        """Restore everything."""
        while self._undo:
            self._undo.pop()()


def patch_os(patches: Patches, functions: Mapping[str, Any]) -> None:
    """Replace functions of ``os``, also where they were imported by name; ``os.supports_*`` stay accurate."""
    replaced = []
    for name, function in functions.items():
        original = getattr(os, name)
        function.__module__ = "os"
        replaced.append((original, function))
        patches.set(os, name, function)
        for supporting in (os.supports_dir_fd, os.supports_follow_symlinks, os.supports_effective_ids, os.supports_fd):
            if original in supporting:
                supporting.add(function)
                patches.on_undo(functools.partial(supporting.discard, function))
    patches.replace_everywhere(replaced, excluded_modules=(os, sys.modules[os.name]))
    accessor = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10 keeps references in a class
    for name, function in functions.items() if accessor is not None else ():
        if name in vars(accessor):
            patches.set(accessor, name, staticmethod(function))
