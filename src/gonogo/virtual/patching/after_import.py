"""Hooks that run when the program imports a package, so that gonogo itself imports nothing heavy needlessly."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, without importing typing in every guarded process
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Action = Callable[[ModuleType], object]
    Context = Callable[[], AbstractContextManager[object]]


class _ImportHookFinder:
    """Wraps the loader that the other finders return, so that contexts and actions are applied to the module."""

    def __init__(self) -> None:
        self.actions: dict[str, list[Action]] = {}
        self.contexts: dict[str, list[Context]] = {}
        self._searching: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if (name not in self.actions and name not in self.contexts) or name in self._searching:
            return None
        from importlib.util import find_spec

        self._searching.add(name)
        try:
            spec = find_spec(name)
        finally:
            self._searching.discard(name)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            actions, contexts = self.actions.get(name, []), self.contexts.get(name, [])
            spec.loader = _WrappedLoader(spec.loader, actions, contexts)  # type: ignore[assignment]
        return spec


class _WrappedLoader:
    """Executes the module with its own loader inside the contexts, then runs the actions."""

    def __init__(self, inner: Loader, actions: list[Action], contexts: list[Context]) -> None:
        self._inner = inner
        self._actions = actions
        self._contexts = contexts

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        from contextlib import ExitStack

        with ExitStack() as stack:
            for context in self._contexts:
                stack.enter_context(context())
            self._inner.exec_module(module)
        for action in self._actions:
            action(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


_finder = _ImportHookFinder()


def after_import(name: str, action: Action) -> Callable[[], None]:
    """Run ``action(module)`` after module ``name`` is imported, or immediately if it already is.

    Returns a function that removes the action (without reverting what it did).
    """
    _finder.actions.setdefault(name, []).append(action)
    _install_finder()
    module = sys.modules.get(name)
    if module is not None:
        action(module)

    def forget_action() -> None:
        _finder.actions[name].remove(action)
        if not _finder.actions[name]:
            del _finder.actions[name]

    return forget_action


def import_within(name: str, context: Context) -> Callable[[], None]:
    """Execute module ``name`` inside ``context()``, unless it is already imported; returns the undo."""
    _finder.contexts.setdefault(name, []).append(context)
    _install_finder()

    def forget_context() -> None:
        _finder.contexts[name].remove(context)
        if not _finder.contexts[name]:
            del _finder.contexts[name]

    return forget_context


def _install_finder() -> None:
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
