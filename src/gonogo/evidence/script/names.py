"""Qualified names: what a name in a script refers to, through imports, aliases and classes.

``AutoModelForCausalLM.from_pretrained`` is ``transformers.AutoModelForCausalLM.from_pretrained`` however it was
imported; with ``engine, *_ = deepspeed.initialize(...)`` the engine is *of the kind* ``deepspeed.initialize``, and
``engine.backward`` is named ``deepspeed.initialize.backward``.
"""

from __future__ import annotations

import ast
import builtins
from functools import cached_property
from typing import Protocol

from gonogo.evidence.script.flow import (
    bound_to,
    class_of_self,
    reaching_bindings,
    resolve_function,
    scope_binding,
    self_attribute_bindings,
)
from gonogo.evidence.script.nodes import annotated_class, is_none, is_static_method
from gonogo.evidence.script.spelling import canonical_api_name
from gonogo.evidence.script.syntax_index import FUNCTIONS, Binding, ScriptIndex, start_position

Names = tuple[str, ...]
"""The names of one object, its own first; for a class of the script, also those of its base classes."""

_BUILTINS = frozenset(dir(builtins))
_MAX_DEPTH = 40
_MAX_BASES = 10
_SELF_RETURNING_METHODS = frozenset(
    {
        *("to", "cuda", "cpu", "npu", "xpu", "train", "eval", "half", "float", "double", "bfloat16", "apply"),
        "requires_grad_",
    }
)
_DATACLASS_PARSING_METHODS = frozenset(
    {"parse_args_into_dataclasses", "parse_json_file", "parse_yaml_file", "parse_dict"}
)


class ProjectNames(Protocol):
    """Looks up dotted names that this script imports in the project's other files."""

    def names(self, dotted: str) -> Names | None:
        """The names of the object at ``dotted``, or None if it isn't the project's."""

    def kinds(self, dotted: str) -> Names | None:
        """The names of what created the object at ``dotted`` in a module of the project."""

    def result(self, dotted: str, path: tuple[int, ...]) -> Names | None:
        """The names of what created the object that a function of the project returns."""

    def class_at(self, dotted: str) -> tuple[NameResolver, ast.ClassDef] | None:
        """The class of the project at ``dotted``."""


class NameResolver:
    """Resolves the names in one script to qualified names; computed on demand and cached."""

    def __init__(self, index: ScriptIndex, resolve_external: ProjectNames | None = None, module: str = "") -> None:
        self.index = index
        self.elsewhere = resolve_external
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
        """The qualified names of a class, function, module or method; empty if unknown."""
        found = self._names.get(node)
        if found is None:
            self._names[node] = ()  # a definition that refers to itself has no name
            if self._depth < _MAX_DEPTH:
                self._depth += 1
                try:
                    found = self._find_names(node)
                finally:
                    self._depth -= 1
                self._names[node] = found
        return found or ()

    def _find_names(self, node: ast.AST) -> Names:
        if isinstance(node, ast.Name):
            return self._names_of_name(node)
        if isinstance(node, ast.Attribute):
            held = self.attribute_bindings(node)
            if held is not None:
                resolver, bindings = held
                agreed = self._agreed_names([resolver.names_of_binding(binding) for binding in bindings], bindings)
                if agreed:
                    return agreed
            bases = self.names(node.value) or self.kinds(node.value)
            return self._resolve_imported(tuple(f"{base}.{node.attr}" for base in bases))
        if isinstance(node, (ast.ClassDef, *FUNCTIONS)):
            return self.names_of_definition(node)
        if isinstance(node, ast.IfExp):
            names = self.names(node.body)
            return names if names == self.names(node.orelse) else ()
        if isinstance(node, ast.Call) and self.names(node.func)[:1] == ("functools.partial",) and node.args:
            return self.names(node.args[0])
        return ()

    def _names_of_name(self, node: ast.Name) -> Names:
        scope = scope_binding(self.index, node.id, node)
        if scope is None:
            return self._names_of_unbound(node.id)
        found = reaching_bindings(self.index, scope.names[node.id], scope, node)
        return self._agreed_names([self.names_of_binding(binding) for binding in found], found)

    def _names_of_unbound(self, name: str) -> Names:
        """The names of a builtin, or of what a star import may provide."""
        stars = self.index.module.stars
        for module in stars:
            there = self.elsewhere.names(f"{module}.{name}") if self.elsewhere is not None else None
            if there:
                return there
        if name in _BUILTINS:
            return (name,)
        return (canonical_api_name(f"{stars[0]}.{name}"),) if len(stars) == 1 else ()

    def names_of_binding(self, binding: Binding) -> Names:
        """The names of the object that one binding assigns."""
        if binding.kind == "import":
            return self._resolve_imported((binding.value,))
        if binding.kind == "define":
            return self.names_of_definition(binding.node)
        if binding.kind == "assign" and not binding.path:
            return self.names(binding.value)
        return ()

    def _resolve_imported(self, names: Names) -> Names:
        if self.elsewhere is not None and names:
            there = self.elsewhere.names(names[0])
            if there:
                return there
        return tuple(dict.fromkeys(canonical_api_name(name) for name in names))

    def names_of_definition(self, node: ast.AST) -> Names:
        """The qualified names of a function or class of this script: its own, and those of a class's bases."""
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
        """The names of all base classes of a class, as far as the project shows."""
        found = self._ancestors.get(node)
        if found is None:
            self._ancestors[node] = ()
            bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            names = [name for base in bases for name in self.names(base)]
            found = self._ancestors[node] = tuple(dict.fromkeys(names))
        return found

    @cached_property
    def _own_classes(self) -> dict[str, ast.ClassDef]:
        return {self.names_of_definition(node)[0]: node for node in self.index.by_type.get(ast.ClassDef, ())}

    def class_named(self, name: str) -> tuple[NameResolver, ast.ClassDef] | None:
        """The project's class of a qualified name, with the resolver of the script that defines it."""
        own = self._own_classes.get(name)
        if own is not None:
            return self, own
        return self.elsewhere.class_at(name) if self.elsewhere is not None else None

    def class_of(self, node: ast.AST) -> tuple[NameResolver, ast.ClassDef] | None:
        """The project's class that a name refers to, and the resolver of the script that defines it."""
        names = self.names(node)
        return self.class_named(names[0]) if names else None

    def attribute_bindings(self, node: ast.Attribute) -> tuple[NameResolver, list[Binding]] | None:
        """The bindings of an attribute in the project's class of its owner, for ``self.x`` or ``model.x``."""
        own = class_of_self(self.index, node.value) if isinstance(node.value, ast.Name) else None
        found: tuple[NameResolver, ast.ClassDef] | None = (self, own) if own is not None else None
        if found is None:
            kinds = self.kinds(node.value)
            found = self.class_named(kinds[0]) if kinds else None
        for _ in range(_MAX_BASES):
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
    def _agreed_names(resolved_names: list[Names], bindings: list[Binding]) -> Names:
        """The result on which all bindings agree, ignoring ``None`` and failed imports; else empty."""
        pairs = list(zip(resolved_names, bindings, strict=True))
        imported = [pair for pair in pairs if pair[1].kind == "import"]
        rest = [pair for pair in pairs if pair[1].kind != "import"]
        if imported and all(isinstance(binding.value, ast.Constant) for _, binding in rest):
            # `try: from a import X; except ImportError: from b import X`: it may be either
            imported.sort(key=lambda pair: start_position(pair[1].node))
            return tuple(dict.fromkeys(name for names, _ in imported for name in names))
        bound = [names for names, binding in pairs if not is_none(binding.value)]
        return bound[0] if bound and all(names == bound[0] for names in bound) else ()

    def class_attributes(self, owner: ast.ClassDef) -> dict[str, list[Binding]]:
        """The attributes that a class's methods set on ``self``."""
        found = self._attributes.get(owner)
        if found is None:
            found = self._attributes[owner] = self_attribute_bindings(self.index, owner)
        return found

    def kinds(self, node: ast.AST) -> Names:
        """The qualified names of the class or call that created the object at a node; empty if unknown."""
        found = self._kinds.get(node)
        if found is None:
            self._kinds[node] = ()
            if self._depth < _MAX_DEPTH:
                self._depth += 1
                try:
                    found = self._find_kinds(node)
                finally:
                    self._depth -= 1
                self._kinds[node] = found
        return found or ()

    def _find_kinds(self, node: ast.AST) -> Names:
        if isinstance(node, ast.Name):
            scope = scope_binding(self.index, node.id, node)
            if scope is None:
                return ()
            found = reaching_bindings(self.index, scope.names[node.id], scope, node)
            return self.kinds_agreed(found)
        if isinstance(node, ast.Attribute):
            held = self.attribute_bindings(node)
            if held is not None:
                return held[0].kinds_agreed(held[1])
            return tuple(f"{kind}.{node.attr}" for kind in self.kinds(node.value))
        if isinstance(node, ast.Call):
            return self.result(node, ())
        if isinstance(node, ast.Await):
            return self.kinds(node.value)
        if isinstance(node, ast.IfExp):
            kinds = self.kinds(node.body)
            return kinds if kinds == self.kinds(node.orelse) or is_none(node.orelse) else ()
        if isinstance(node, ast.NamedExpr):
            return self.kinds(node.value)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            key = node.slice.value
            return self._kinds_of_element(node.value, (key,)) if isinstance(key, int) and 0 <= key < 100 else ()
        return ()

    def kinds_agreed(self, bindings: list[Binding]) -> Names:
        """The names of what created an object, if all its possible bindings agree."""
        known = [self._kinds_of_binding(binding) for binding in bindings if not is_none(binding.value)]
        return known[0] if known and all(kinds == known[0] for kinds in known) else ()

    def _kinds_of_binding(self, binding: Binding) -> Names:
        if binding.kind == "assign":
            return self._kinds_of_element(binding.value, binding.path)
        if binding.kind == "with":
            return self.kinds(binding.value)
        if binding.kind == "import" and self.elsewhere is not None:
            return self.elsewhere.kinds(binding.value) or ()
        if binding.kind == "parameter":
            return self._kinds_of_parameter(binding)
        return ()

    def _kinds_of_element(self, value: ast.AST, path: tuple[int, ...]) -> Names:
        if not path:
            return self.kinds(value)
        if isinstance(value, (ast.Tuple, ast.List)):
            elements = value.elts[: path[0] + 1]
            if len(elements) <= path[0] or any(isinstance(each, ast.Starred) for each in elements):
                return ()
            return self._kinds_of_element(elements[path[0]], path[1:])
        return self.result(value, path) if isinstance(value, ast.Call) else ()

    def _kinds_of_parameter(self, binding: Binding) -> Names:
        """The classes of a parameter's value, by its annotation or by the calls of its function."""
        arg, function = binding.node, binding.value
        if not isinstance(arg, ast.arg):
            return ()
        owner = self.index.parents.get(function)
        if isinstance(owner, ast.ClassDef) and isinstance(function, FUNCTIONS) and not is_static_method(function):
            arguments = [*function.args.posonlyargs, *function.args.args]
            if arguments and arguments[0] is arg:
                return self.names_of_definition(owner)
        annotated = annotated_class(arg.annotation)
        if annotated is not None:
            names = self.names(annotated)
            if names and names[0] not in _BUILTINS and not names[0].startswith(("typing.", "collections.")):
                return names
        return self._kinds_of_arguments(arg, function)

    def _kinds_of_arguments(self, arg: ast.arg, function: ast.AST) -> Names:
        """The classes of the argument passed for a parameter, if all calls in this script agree."""
        if not isinstance(function, FUNCTIONS) or not isinstance(self.index.parents.get(function), ast.Module):
            return ()
        places = [*function.args.posonlyargs, *function.args.args]
        at = next((i for i, each in enumerate(places) if each is arg), None)
        found: list[Names] = []
        for call in self.index.calls_by_name.get(function.name, ()):
            passed = next((each.value for each in call.keywords if each.arg == arg.arg), None)
            if passed is None and at is not None and at < len(call.args):
                if any(isinstance(each, ast.Starred) for each in call.args[: at + 1]):
                    return ()
                passed = call.args[at]
            found.append(self.kinds(passed) if passed is not None else ())
        return found[0] if found and all(kinds == found[0] for kinds in found) else ()

    def result(self, call: ast.AST, path: tuple[int, ...]) -> Names:
        """The names of what created the object that a call returns, or the one at ``path`` in the returned tuple."""
        if not isinstance(call, ast.Call):
            return ()
        func = call.func
        names = self.names(func)
        if isinstance(func, ast.Name) and func.id == "super" and names == ("super",):
            owner = self._enclosing_class(call)
            return self.ancestors(owner) if owner is not None else ()
        if isinstance(func, ast.Attribute):
            if func.attr in _SELF_RETURNING_METHODS and not path:
                return self.kinds(func.value) or names
            if func.attr == "prepare" and names[:1] == ("accelerate.Accelerator.prepare",):
                at = path[0] if path else 0
                if len(path) <= 1 and at < len(call.args) and (path or len(call.args) == 1):
                    return self.kinds(call.args[at])
                return ()
            if func.attr in _DATACLASS_PARSING_METHODS and path:
                parsed = self._parsed_dataclass(func.value, path[0])
                if parsed:
                    return parsed
        if not names:
            return ()
        function = resolve_function(self.index, func)
        if function is not None:
            return self._kinds_returned(function, path) or _names_of_element(names, path)
        there = self.elsewhere.result(names[0], path) if self.elsewhere is not None else None
        return there or _names_of_element(names, path)

    def _parsed_dataclass(self, parser: ast.expr, at: int) -> Names:
        """The dataclass that HfArgumentParser returns at index ``at``."""
        made = bound_to(self.index, parser)
        if not isinstance(made, ast.Call) or self.names(made.func)[:1] != ("transformers.HfArgumentParser",):
            return ()
        classes = (
            made.args[0] if made.args else next((k.value for k in made.keywords if k.arg == "dataclass_types"), None)
        )
        if isinstance(classes, (ast.Tuple, ast.List)):
            return self.names(classes.elts[at]) if at < len(classes.elts) else ()
        return self.names(classes) if classes is not None and at == 0 else ()

    def _kinds_returned(self, function: ast.AST, path: tuple[int, ...]) -> Names:
        """The qualified names of what created the object that a function returns, cached."""
        key = (function, path)
        if key in self._returning:  # a function that calls itself
            return ()
        self._returning.add(key)
        try:
            return self._find_kinds_returned(function, path)
        finally:
            self._returning.discard(key)

    def _find_kinds_returned(self, function: ast.AST, path: tuple[int, ...]) -> Names:
        returns = [each for each in self.index.by_type.get(ast.Return, ()) if each.value is not None]
        own = [each for each in returns if self.index.scope_at(each).node is function]
        found = [self._kinds_of_element(each.value, path) for each in own]
        return found[0] if found and all(kinds == found[0] for kinds in found) else ()

    def kinds_returned_by(self, name: str, path: tuple[int, ...]) -> Names:
        """The kinds of the object returned by the top-level function of that name."""
        bindings = self.index.module.names.get(name, [])
        if len(bindings) == 1 and isinstance(bindings[0].node, FUNCTIONS):
            return self._kinds_returned(bindings[0].node, path)
        return ()

    def _enclosing_class(self, node: ast.AST) -> ast.ClassDef | None:
        parent = self.index.parents.get(node)
        while parent is not None and not isinstance(parent, ast.ClassDef):
            parent = self.index.parents.get(parent)
        return parent


def _names_of_element(names: Names, path: tuple[int, ...]) -> Names:
    """The names of one element of a result; the first of ``deepspeed.initialize``, the engine, keeps its name."""
    if not path or (path == (0,) and names[:1] == ("deepspeed.initialize",)):
        return names
    return tuple(name + "".join(f"[{i}]" for i in path) for name in names)
