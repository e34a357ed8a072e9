"""Which options of a program name something that it loads; others select one of its own classes or functions.

``--model DiT-XL/2`` looks like a name of the Hub, but is only the key of a table where the program reads
``MODELS[args.model]``. An option names a model unless each place that reads it shows that it is not loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gonogo.evidence.run import Run
from gonogo.evidence.script.identifiers import last_name
from gonogo.evidence.script.script import Call, Script

_FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)
_PRINTING_CALLS = frozenset({"print", "debug", "info", "warning", "error", "vars", "len", "set_description"})
_KEEPING_METHODS = frozenset({"strip", "rstrip", "lstrip", "lower", "upper", "format"})
_MAX_DEPTH = 4


def may_be_loaded(run: Run, option: str) -> bool:
    """Whether the run may load what an option names; False if all that reads it is seen, and only looks it up."""
    name = option.replace("-", "_")
    holders = _argument_namespaces(run, name)
    if not holders:
        return True  # of a library's parser, which may read it anywhere
    reads = [
        (script, node)
        for script in run.scripts
        for node in script.nodes(ast.Attribute)
        if node.attr == name and isinstance(node.ctx, ast.Load) and last_name(node.value) in holders
    ]
    return not reads or any(_may_load_value(run, script, node, 0) for script, node in reads)


def _argument_namespaces(run: Run, option: str) -> set[str]:
    """The variable names under which the program's own files have the parsed arguments, such as ``args``.

    Empty if its argparse does not declare the option, or code outside of these files gets the arguments too.
    """
    found = {
        node.id
        for script in run.scripts
        if any(option in _declared_options(call) for one in run.scripts for call in one.calls("*.add_argument"))
        for call in script.calls("*.parse_args", "*.parse_known_args")
        for assigned in script.ancestors(call.node)
        if isinstance(assigned, ast.Assign)
        for target in assigned.targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name)
    }
    before: set[str] = set()
    while found != before:
        before = set(found)
        for script in run.scripts:
            for call in script.nodes(ast.Call):
                given = [*call.args, *(one.value for one in call.keywords)]
                for one in given:
                    if not isinstance(one, ast.Name | ast.Attribute) or last_name(one) not in before:
                        continue
                    called = last_name(call.func)
                    parameters = list(_receiving_parameters(run, call, one))
                    if not parameters and called not in _PRINTING_CALLS:
                        return set()
                    found.update(parameters)
    return found


def _declared_options(call: Call) -> set[str]:
    return {(call.argument(at).string or "").lstrip("-").replace("-", "_") for at in range(len(call.node.args))}


def _receiving_parameters(run: Run, call: ast.Call, value: ast.expr) -> Iterator[str]:
    """The parameters of the run's own functions to which a call passes a value."""
    for _, function in _functions_named(run, last_name(call.func)):
        given = [*function.args.posonlyargs, *function.args.args]
        if value in call.args:
            yield from (one.arg for one in given[call.args.index(value) :][:1])
        yield from (one.arg for one in call.keywords if one.value is value and one.arg)


def _may_load_value(run: Run, script: Script, node: ast.expr, depth: int) -> bool:
    """Whether the value of an expression may be loaded as a name."""
    above = _parent_node(script, node)
    if depth > _MAX_DEPTH:
        return True
    if isinstance(above, ast.Compare | ast.FormattedValue | ast.Expr | ast.If | ast.Assert | ast.UnaryOp):
        return False
    if isinstance(above, ast.Subscript):
        return node is not above.slice and _may_load_value(run, script, above, depth + 1)
    if isinstance(above, ast.Attribute):  # a method of the text: mostly it makes another one
        call = _parent_node(script, above)
        return (
            above.attr in _KEEPING_METHODS
            and isinstance(call, ast.Call)
            and _may_load_value(run, script, call, depth + 1)
        )
    if isinstance(above, ast.Assign) and all(isinstance(target, ast.Name) for target in above.targets):
        scope = next((one for one in script.ancestors(above) if isinstance(one, _FUNCTION_NODES)), None)
        names = {target.id for target in above.targets if isinstance(target, ast.Name)}
        return any(_may_load_value(run, script, one, depth + 1) for one in _variable_reads(script, scope, names))
    if isinstance(above, ast.BoolOp | ast.IfExp):
        return _may_load_value(run, script, above, depth + 1)
    call = _parent_node(script, above) if isinstance(above, ast.keyword) else above
    if not isinstance(call, ast.Call):
        return True
    called = last_name(call.func)
    if called in _PRINTING_CALLS or (called == "getattr" and node in call.args[1:2]):
        return False
    parameters = set(_receiving_parameters(run, call, node))
    return not parameters or any(
        _may_load_value(run, where, one, depth + 1)
        for where, function in _functions_named(run, called)
        for one in _variable_reads(where, function, parameters)
    )


def _functions_named(run: Run, name: str) -> Iterator[tuple[Script, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions of that name in the run's files."""
    for script in run.scripts:
        yield from ((script, node) for node in script.nodes(ast.FunctionDef) if node.name == name)
        yield from ((script, node) for node in script.nodes(ast.AsyncFunctionDef) if node.name == name)


def _variable_reads(script: Script, scope: ast.AST | None, names: set[str]) -> Iterator[ast.Name]:
    """The reads of variables in a function, or in the whole file."""
    for node in script.nodes(ast.Name):
        inside = scope is None or any(one is scope for one in script.ancestors(node))
        if inside and node.id in names and isinstance(node.ctx, ast.Load):
            yield node


def _parent_node(script: Script, node: ast.AST) -> ast.AST | None:
    return next(iter(script.ancestors(node)), None)
