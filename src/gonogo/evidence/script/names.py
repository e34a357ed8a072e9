"""Qualified names: what a name in a script stands for, through imports, aliases and classes.

``AutoModelForCausalLM.from_pretrained`` is ``transformers.AutoModelForCausalLM.from_pretrained`` however it was
imported; with ``engine, *_ = deepspeed.initialize(...)`` the engine is *of the kind* ``deepspeed.initialize``, and
``engine.backward`` is named ``deepspeed.initialize.backward``.
"""

from __future__ import annotations

import ast
import builtins
from functools import cached_property
from typing import Protocol

from gonogo.evidence.script.flow import reaching, scope_binding
from gonogo.evidence.script.index import FUNCTIONS, Binding, Index, Scope, position
from gonogo.evidence.script.spelling import canonical

Names = tuple[str, ...]
"""The names of one thing, its own first: for a class of the script, those of the classes that it derives from too."""

BUILTINS = frozenset(dir(builtins))
DEEPEST = 40
_MOST_BASES = 10


class Elsewhere(Protocol):
    """What other files of the project say of a dotted name that this script imports."""

    def names(self, dotted: str) -> Names | None:
        """The names of what ``dotted`` is, or None where it isn't the project's."""

    def kinds(self, dotted: str) -> Names | None:
        """What made the object that a module of the project holds there."""

    def result(self, dotted: str, path: tuple[int, ...]) -> Names | None:
        """What a function of the project returns."""

    def class_at(self, dotted: str) -> tuple[BaseResolver, ast.ClassDef] | None:
        """The class of the project that ``dotted`` is."""


class BaseResolver:
    """Answers for one script; everything is worked out when asked, and once."""

    def __init__(self, index: Index, elsewhere: Elsewhere | None = None, module: str = "") -> None:
        self.index = index
        self.elsewhere = elsewhere
        self.module = module
        """What other scripts import this one as; the entry, which none does, is called by bare names."""
        self._names: dict[ast.AST, Names] = {}
        self._kinds: dict[ast.AST, Names] = {}
        self._ancestors: dict[ast.ClassDef, Names] = {}
        self._attributes: dict[ast.ClassDef, dict[str, list[Binding]]] = {}
        self._depth = 0
        self._returning: set[tuple[ast.AST, tuple[int, ...]]] = set()
        """The functions whose results are being worked out."""

    def names(self, node: ast.AST) -> Names:
        """The qualified names of a class, function, module or method; empty where they can't be told."""
        found = self._names.get(node)
        if found is None:
            self._names[node] = ()  # what refers to itself has no name
            if self._depth < DEEPEST:
                self._depth += 1
                try:
                    found = self._find_names(node)
                finally:
                    self._depth -= 1
                self._names[node] = found
        return found or ()

    def kinds(self, node: ast.AST) -> Names:
        """What made the object that a node stands for."""
        raise NotImplementedError

    def kinds_agreed(self, bindings: list[Binding]) -> Names:
        """What made the object that a name holds, where all that may have bound it agree."""
        raise NotImplementedError

    def _find_names(self, node: ast.AST) -> Names:
        if isinstance(node, ast.Name):
            return self._names_of_name(node)
        if isinstance(node, ast.Attribute):
            held = self.held(node)
            if held is not None:
                resolver, bindings = held
                agreed = self._agreed([resolver.names_bound(binding) for binding in bindings], bindings)
                if agreed:
                    return agreed
            bases = self.names(node.value) or self.kinds(node.value)
            return self._imported(tuple(f"{base}.{node.attr}" for base in bases))
        if isinstance(node, (ast.ClassDef, *FUNCTIONS)):
            return self.defined(node)
        if isinstance(node, ast.IfExp):
            names = self.names(node.body)
            return names if names == self.names(node.orelse) else ()
        if isinstance(node, ast.Call) and self.names(node.func)[:1] == ("functools.partial",) and node.args:
            return self.names(node.args[0])
        return ()

    def _names_of_name(self, node: ast.Name) -> Names:
        scope = scope_binding(self.index, node.id, node)
        if scope is None:
            return self._names_of_free(node.id)
        found = reaching(self.index, scope.names[node.id], scope, node)
        return self._agreed([self.names_bound(binding) for binding in found], found)

    def _names_of_free(self, name: str) -> Names:
        stars = self.index.module.stars
        for module in stars:
            there = self.elsewhere.names(f"{module}.{name}") if self.elsewhere is not None else None
            if there:
                return there
        if name in BUILTINS:
            return (name,)
        return (canonical(f"{stars[0]}.{name}"),) if len(stars) == 1 else ()

    def names_bound(self, binding: Binding) -> Names:
        """The names of what one binding gives a name."""
        if binding.kind == "import":
            return self._imported((binding.value,))
        if binding.kind == "define":
            return self.defined(binding.node)
        if binding.kind == "assign" and not binding.path:
            return self.names(binding.value)
        return ()

    def _imported(self, names: Names) -> Names:
        if self.elsewhere is not None and names:
            there = self.elsewhere.names(names[0])
            if there:
                return there
        return tuple(dict.fromkeys(canonical(name) for name in names))

    def defined(self, node: ast.AST) -> Names:
        """The names of a function or class of this script: within the script, and those that a class inherits."""
        own = getattr(node, "name", "")
        parent = self.index.parents.get(node)
        while parent is not None:
            if isinstance(parent, ast.ClassDef):
                own = f"{parent.name}.{own}"
            parent = self.index.parents.get(parent)
        if self.module:
            own = f"{self.module}.{own}"
        return (own, *self.ancestors(node)) if isinstance(node, ast.ClassDef) else (own,)

    def ancestors(self, node: ast.ClassDef) -> Names:
        """The names of all classes that a class derives from, as far as the project shows."""
        found = self._ancestors.get(node)
        if found is None:
            self._ancestors[node] = ()
            names = [name for base in node.bases for name in self.names(_unsubscripted(base))]
            found = self._ancestors[node] = tuple(dict.fromkeys(names))
        return found

    @cached_property
    def _own_classes(self) -> dict[str, ast.ClassDef]:
        return {self.defined(node)[0]: node for node in self.index.by_type.get(ast.ClassDef, ())}

    def class_named(self, name: str) -> tuple[BaseResolver, ast.ClassDef] | None:
        """The project's class of a qualified name, with the resolver of the script that defines it."""
        own = self._own_classes.get(name)
        if own is not None:
            return self, own
        return self.elsewhere.class_at(name) if self.elsewhere is not None else None

    def class_of(self, node: ast.AST) -> tuple[BaseResolver, ast.ClassDef] | None:
        """The project's class that a name stands for, with the resolver of the script that defines it."""
        names = self.names(node)
        return self.class_named(names[0]) if names else None

    def held(self, node: ast.Attribute) -> tuple[BaseResolver, list[Binding]] | None:
        """What the project's classes set an attribute of their instances to, for ``self.x`` or ``model.x``."""
        own = self._own_class(node.value) if isinstance(node.value, ast.Name) else None
        found: tuple[BaseResolver, ast.ClassDef] | None = (self, own) if own is not None else None
        if found is None:
            kinds = self.kinds(node.value)
            found = self.class_named(kinds[0]) if kinds else None
        for _ in range(_MOST_BASES):
            if found is None:
                break
            resolver, owner = found
            bindings = resolver.class_attributes(owner).get(node.attr)
            if bindings:
                return resolver, bindings
            bases = [resolver.class_of(base) for base in owner.bases]
            found = next((base for base in bases if base is not None and base[1] is not owner), None)
        return None

    @staticmethod
    def _agreed(found: list[Names], bindings: list[Binding]) -> Names:
        """One answer of several: where all agree, ``None`` and failed imports left out of account."""
        pairs = list(zip(found, bindings, strict=True))
        imported = [pair for pair in pairs if pair[1].kind == "import"]
        rest = [pair for pair in pairs if pair[1].kind != "import"]
        if imported and all(isinstance(binding.value, ast.Constant) for _, binding in rest):
            # `try: from a import X; except ImportError: from b import X`: it may be either
            imported.sort(key=lambda pair: position(pair[1].node))
            return tuple(dict.fromkeys(name for names, _ in imported for name in names))
        said = [names for names, binding in pairs if not is_none(binding.value)]
        return said[0] if said and all(names == said[0] for names in said) else ()

    def _own_class(self, name: ast.Name) -> ast.ClassDef | None:
        """The class whose instance a name is, where it is a method's first parameter."""
        scope = scope_binding(self.index, name.id, name)
        if scope is None or not isinstance(scope.node, FUNCTIONS):
            return None
        owner = self.index.parents.get(scope.node)
        arguments = [*scope.node.args.posonlyargs, *scope.node.args.args]
        if isinstance(owner, ast.ClassDef) and arguments and arguments[0].arg == name.id:
            return owner if not is_static(scope.node) else None
        return None

    def class_attributes(self, owner: ast.ClassDef) -> dict[str, list[Binding]]:
        """What the methods of a class set on ``self``."""
        found = self._attributes.get(owner)
        if found is None:
            found = self._attributes[owner] = {}
            for method in owner.body:
                scope: Scope | None = self.index.scopes.get(method)
                if scope is None or not isinstance(method, FUNCTIONS):
                    continue
                arguments = [*method.args.posonlyargs, *method.args.args]
                first = arguments[0].arg if arguments else None
                for (base, attribute), bindings in scope.attributes.items():
                    if base == first:
                        found.setdefault(attribute, []).extend(bindings)
        return found


def is_none(node: object) -> bool:
    """Whether an expression is ``None`` as written."""
    return isinstance(node, ast.Constant) and node.value is None


def _unsubscripted(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Subscript) else node


def is_static(function: ast.AST) -> bool:
    """Whether a method's first parameter is no instance of its class."""
    decorators = getattr(function, "decorator_list", [])
    return any(isinstance(each, ast.Name) and each.id in ("staticmethod", "classmethod") for each in decorators)


def dotted(node: ast.AST) -> str:
    """A chain of attributes as written: ``model.generate``; what stands before it where that is no name is left out."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))
