"""What made the object that a name holds: the class or the call, through assignments, attributes and functions."""

from __future__ import annotations

import ast

from gonogo.evidence.script.flow import reaching, scope_binding
from gonogo.evidence.script.index import FUNCTIONS, Binding
from gonogo.evidence.script.names import BUILTINS, DEEPEST, BaseResolver, Names, dotted, is_none, is_static

_RETURN_THEMSELVES = frozenset(
    {
        "to",
        "cuda",
        "cpu",
        "npu",
        "xpu",
        "train",
        "eval",
        "half",
        "float",
        "double",
        "bfloat16",
        "requires_grad_",
        "apply",
    }
)
_PARSED = frozenset({"parse_args_into_dataclasses", "parse_json_file", "parse_yaml_file", "parse_dict"})


class NameResolver(BaseResolver):
    """Answers for one script; everything is worked out when asked, and once."""

    def kinds(self, node: ast.AST) -> Names:
        """The names of the class or call that made the object a node stands for; empty where they can't be told."""
        found = self._kinds.get(node)
        if found is None:
            self._kinds[node] = ()
            if self._depth < DEEPEST:
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
            found = reaching(self.index, scope.names[node.id], scope, node)
            return self.kinds_agreed(found)
        if isinstance(node, ast.Attribute):
            held = self.held(node)
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
            return self._kinds_at(node.value, (key,)) if isinstance(key, int) and 0 <= key < 100 else ()
        return ()

    def kinds_agreed(self, bindings: list[Binding]) -> Names:
        """What made the object that a name holds, where all that may have bound it agree."""
        known = [self._kinds_bound(binding) for binding in bindings if not is_none(binding.value)]
        return known[0] if known and all(kinds == known[0] for kinds in known) else ()

    def _kinds_bound(self, binding: Binding) -> Names:
        if binding.kind == "assign":
            return self._kinds_at(binding.value, binding.path)
        if binding.kind == "with":
            return self.kinds(binding.value)
        if binding.kind == "import" and self.elsewhere is not None:
            return self.elsewhere.kinds(binding.value) or ()
        if binding.kind == "parameter":
            return self._kinds_of_parameter(binding)
        return ()

    def _kinds_at(self, value: ast.AST, path: tuple[int, ...]) -> Names:
        if not path:
            return self.kinds(value)
        if isinstance(value, (ast.Tuple, ast.List)):
            elements = value.elts[: path[0] + 1]
            if len(elements) <= path[0] or any(isinstance(each, ast.Starred) for each in elements):
                return ()
            return self._kinds_at(elements[path[0]], path[1:])
        return self.result(value, path) if isinstance(value, ast.Call) else ()

    def _kinds_of_parameter(self, binding: Binding) -> Names:
        arg, function = binding.node, binding.value
        if not isinstance(arg, ast.arg):
            return ()
        owner = self.index.parents.get(function)
        if isinstance(owner, ast.ClassDef) and isinstance(function, FUNCTIONS) and not is_static(function):
            arguments = [*function.args.posonlyargs, *function.args.args]
            if arguments and arguments[0] is arg:
                return self.defined(owner)
        annotated = _annotation(arg.annotation)
        if annotated is not None:
            names = self.names(annotated)
            if names and names[0] not in BUILTINS and not names[0].startswith(("typing.", "collections.")):
                return names
        return self._kinds_passed(arg, function)

    def _kinds_passed(self, arg: ast.arg, function: ast.AST) -> Names:
        """What every call of a function in this script passes for a parameter."""
        if not isinstance(function, FUNCTIONS) or not isinstance(self.index.parents.get(function), ast.Module):
            return ()
        places = [*function.args.posonlyargs, *function.args.args]
        at = next((i for i, each in enumerate(places) if each is arg), None)
        found: list[Names] = []
        for call in self.index.calls:
            if not isinstance(call.func, ast.Name) or call.func.id != function.name:
                continue
            passed = next((each.value for each in call.keywords if each.arg == arg.arg), None)
            if passed is None and at is not None and at < len(call.args):
                if any(isinstance(each, ast.Starred) for each in call.args[: at + 1]):
                    return ()
                passed = call.args[at]
            found.append(self.kinds(passed) if passed is not None else ())
        return found[0] if found and all(kinds == found[0] for kinds in found) else ()

    def result(self, call: ast.AST, path: tuple[int, ...]) -> Names:
        """What made the object that a call returns, or the one at ``path`` of the tuple that it returns."""
        if not isinstance(call, ast.Call):
            return ()
        func = call.func
        names = self.names(func)
        if isinstance(func, ast.Name) and func.id == "super" and names == ("super",):
            owner = self._class_around(call)
            return self.ancestors(owner) if owner is not None else ()
        if isinstance(func, ast.Attribute):
            if func.attr in _RETURN_THEMSELVES and not path:
                return self.kinds(func.value) or names
            if func.attr == "prepare" and names[:1] == ("accelerate.Accelerator.prepare",):
                at = path[0] if path else 0
                if len(path) <= 1 and at < len(call.args) and (path or len(call.args) == 1):
                    return self.kinds(call.args[at])
                return ()
            if func.attr in _PARSED and path:
                parsed = self._parsed_class(func.value, path[0])
                if parsed:
                    return parsed
        if not names:
            return ()
        function = self._own_function(func)
        if function is not None:
            return self._returned(function, path) or _at(names, path)
        there = self.elsewhere.result(names[0], path) if self.elsewhere is not None else None
        return there or _at(names, path)

    def _parsed_class(self, parser: ast.expr, at: int) -> Names:
        """The dataclass that HfArgumentParser fills at a place of its answer."""
        made = self._maker(parser)
        if made is None or self.names(made.func)[:1] != ("transformers.HfArgumentParser",):
            return ()
        classes = (
            made.args[0] if made.args else next((k.value for k in made.keywords if k.arg == "dataclass_types"), None)
        )
        if isinstance(classes, (ast.Tuple, ast.List)):
            return self.names(classes.elts[at]) if at < len(classes.elts) else ()
        return self.names(classes) if classes is not None and at == 0 else ()

    def _maker(self, node: ast.expr) -> ast.Call | None:
        """The call that made what a name holds, where one assignment says so."""
        if isinstance(node, ast.Call):
            return node
        if isinstance(node, ast.Name):
            scope = scope_binding(self.index, node.id, node)
            if scope is not None:
                found = reaching(self.index, scope.names[node.id], scope, node)
                if len(found) == 1 and found[0].kind == "assign" and isinstance(found[0].value, ast.Call):
                    return found[0].value
        return None

    def _own_function(self, func: ast.expr) -> ast.AST | None:
        if isinstance(func, ast.Name):
            scope = scope_binding(self.index, func.id, func)
            if scope is not None and len(scope.names[func.id]) == 1:
                binding = scope.names[func.id][0]
                if binding.kind == "define" and isinstance(binding.node, FUNCTIONS):
                    return binding.node
        return None

    def _returned(self, function: ast.AST, path: tuple[int, ...]) -> Names:
        key = (function, path)
        if key in self._returning:  # a function that calls itself
            return ()
        self._returning.add(key)
        try:
            return self._returned_by(function, path)
        finally:
            self._returning.discard(key)

    def _returned_by(self, function: ast.AST, path: tuple[int, ...]) -> Names:
        returns = [each for each in self.index.by_type.get(ast.Return, ()) if each.value is not None]
        own = [each for each in returns if self.index.scope_at(each).node is function]
        found = [self._kinds_at(each.value, path) for each in own]
        return found[0] if found and all(kinds == found[0] for kinds in found) else ()

    def returned_by(self, name: str, path: tuple[int, ...]) -> Names:
        """What the function of that name at the script's top returns."""
        bindings = self.index.module.names.get(name, [])
        if len(bindings) == 1 and isinstance(bindings[0].node, FUNCTIONS):
            return self._returned(bindings[0].node, path)
        return ()

    def _class_around(self, node: ast.AST) -> ast.ClassDef | None:
        parent = self.index.parents.get(node)
        while parent is not None and not isinstance(parent, ast.ClassDef):
            parent = self.index.parents.get(parent)
        return parent


def _annotation(node: ast.expr | None) -> ast.expr | None:
    """The class that an annotation names: ``Optional[X]`` and ``X | None`` are X."""
    if isinstance(node, ast.Subscript):
        return node.slice if dotted(node.value).rpartition(".")[2] == "Optional" else None
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and node.right.value is None:
        return node.left
    return node if isinstance(node, (ast.Name, ast.Attribute)) else None


def _at(names: Names, path: tuple[int, ...]) -> Names:
    """The names of one of several results; the first of ``deepspeed.initialize``'s, the engine, goes by its name."""
    if not path or (path == (0,) and names[:1] == ("deepspeed.initialize",)):
        return names
    return tuple(name + "".join(f"[{i}]" for i in path) for name in names)
