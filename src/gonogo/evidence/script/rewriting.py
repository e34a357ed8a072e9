"""Rewrites of a script that make all ranks do what only some do, leaving everything else unchanged.

Each returns the edits, or None if the code doesn't have a supported form.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gonogo.evidence.script.identifiers import same_code
from gonogo.evidence.script.script import Script
from gonogo.finding import Edit

Edits = tuple[Edit, ...] | None


def hoist_from_branch(script: Script, branch: ast.If, statement: ast.stmt) -> Edits:
    """Move a statement out of a branch, before or after it, so that it runs whatever the test says.

    Code after ``if …: return`` counts as its branch: the test is moved after the statement.
    """
    if statement in branch.body:
        return _hoist_from_block(script, branch, branch.body, statement)
    if statement in branch.orelse:
        return _hoist_from_block(script, branch, branch.orelse, statement)
    return _move_test_after(script, branch, statement)


def _hoist_from_block(script: Script, branch: ast.If, block: list[ast.stmt], statement: ast.stmt) -> Edits:
    inside, outside = _indent(script, statement), _indent(script, branch)
    text = _lines(script, statement)
    if inside is None or outside is None or text is None or _is_elif(script, branch):
        return None
    moved = _shift_indent(text, inside, outside)
    if len(block) == 1 and block is branch.body and not branch.orelse:
        if isinstance(statement, ast.With) and (swapped := _swap_if_and_with(script, branch, statement)) is not None:
            return swapped
        return _replace_lines(script, branch, branch, moved)
    if block is branch.orelse and len(block) == 1:
        body = _lines(script, branch.body[-1])
        if body is None:
            return None
        return _replace_range(
            script, _end_offset(script, branch.body[-1]), _end_offset(script, statement), "\n" + moved.rstrip("\n")
        )
    removed = script.removing_statement(statement)
    if removed is None:
        return None
    placed = (
        script.inserting_before(branch, _shift_indent(text, inside, "").rstrip("\n"))
        if statement is block[0] and block is branch.body and not _uses_bound_name(block[:0], statement)
        else script.inserting_after(branch, _shift_indent(text, inside, "").rstrip("\n"))
        if statement is block[-1]
        else None
    )
    return (placed, removed) if placed is not None else None


def _swap_if_and_with(script: Script, branch: ast.If, inner: ast.With) -> Edits:
    """Swap ``if test:`` with the ``with …:`` inside it."""
    test, items = script.place(branch.test), script.place(inner.items[0].context_expr)
    last = script.place(inner.items[-1].optional_vars or inner.items[-1].context_expr)
    data = script.source.data
    outer_head = data[script.place(branch).start : data.index(b":", test.end) + 1].decode()
    inner_head = data[script.place(inner).start : data.index(b":", last.end) + 1].decode()
    if "\n" in outer_head or "\n" in inner_head or items.start < script.place(inner).start:
        return None
    start, begin = script.place(branch).start, script.place(inner).start
    return (
        script.source.place(start, start + len(outer_head.encode())).edit(inner_head),
        script.source.place(begin, begin + len(inner_head.encode())).edit(outer_head),
    )


def _move_test_after(script: Script, branch: ast.If, statement: ast.stmt) -> Edits:
    """Move ``if …: return`` after a statement that follows it in the same block."""
    found = script.index.block(branch)
    text, indent = _lines(script, branch), _indent(script, branch)
    if found is None or statement not in found[0] or branch.orelse or text is None or indent is None:
        return None
    removed = script.removing_statement(branch)
    placed = script.inserting_after(statement, _shift_indent(text, indent, "").rstrip("\n"))
    return (removed, placed) if removed is not None and placed is not None else None


def hoist_call(script: Script, branch: ast.If, call: ast.Call, name: str) -> Edits:
    """Assign a call inside a branch to a name before the branch, so that it is executed whatever the test says."""
    if {node.id for node in ast.walk(script.index.tree) if isinstance(node, ast.Name)} & {name}:
        return None
    statement = script.statement(call)
    block = next((one for one in (branch.body, branch.orelse) if statement in one), None)
    if statement is None or block is None or _uses_bound_name(block[: block.index(statement)], call):
        return None
    placed = script.inserting_before(branch, f"{name} = {script.place(call).text}")
    replaced = script.replacing(call, name)
    return (placed, replaced) if placed is not None and replaced is not None else None


def _uses_bound_name(before: Sequence[ast.stmt], node: ast.AST) -> bool:
    """Whether a node reads a name that one of the statements before it assigns."""
    bound = {
        name.id
        for statement in before
        for name in ast.walk(statement)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    return any(isinstance(name, ast.Name) and name.id in bound for name in ast.walk(node))


def multiply_by_test(script: Script, branch: ast.If) -> Edits:
    """``if test: x = x + term`` becomes ``x = x + (term) * float(bool(test))``: the term is always computed."""
    if branch.orelse or len(branch.body) != 1 or _is_elif(script, branch):
        return None
    statement = branch.body[0]
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)):
        target: ast.expr = statement.target
        term = statement.value
        sign = "+" if isinstance(statement.op, ast.Add) else "-"
    elif (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.value, ast.BinOp)
        and isinstance(statement.value.op, (ast.Add, ast.Sub))
        and same_code(statement.value.left, statement.targets[0])
    ):
        target, term = statement.targets[0], statement.value.right
        sign = "+" if isinstance(statement.value.op, ast.Add) else "-"
    else:
        return None
    written, test = script.place(target).text, script.place(branch.test).text
    edit = script.replacing(branch, f"{written} = {written} {sign} ({script.place(term).text}) * float(bool({test}))")
    return (edit,) if edit is not None else None


def synchronize_test(script: Script, branch: ast.If, device: str) -> Edits:
    """Make the test of a branch true on all ranks as soon as it is true on one of them."""
    distributed = torch_distributed_name(script)
    if distributed is None or _is_elif(script, branch):
        return None
    test = script.place(branch.test).text
    placed = script.inserting_before(
        branch,
        f"on_any_rank = torch.tensor(float(bool({test})), device={device})\n"
        f"{distributed}.all_reduce(on_any_rank, op={distributed}.ReduceOp.MAX)",
    )
    replaced = script.replacing(branch.test, "on_any_rank.item()")
    return (placed, replaced) if placed is not None and replaced is not None else None


def cycle_to_longest_loader(script: Script, loop: ast.For, device: str) -> Edits:
    """Make a loop over a loader run equally often on every rank: loaders with fewer batches start over."""
    iterated = loop.iter
    while isinstance(iterated, ast.Call) and iterated.args:
        iterated = iterated.args[0]
    distributed = torch_distributed_name(script)
    if distributed is None or not isinstance(iterated, (ast.Name, ast.Attribute)):
        return None
    loader = script.place(iterated).text
    placed = script.inserting_before(
        loop,
        f"most_batches = torch.tensor(len({loader}), device={device})\n"
        f"{distributed}.all_reduce(most_batches, op={distributed}.ReduceOp.MAX)",
    )
    again = f"itertools.chain.from_iterable(itertools.repeat({loader}))"
    replaced = script.replacing(iterated, f"itertools.islice({again}, int(most_batches))")
    imported = None if script.imports("itertools") else script.inserting_import("import itertools")
    if placed is None or replaced is None:
        return None
    return (placed, replaced, imported) if imported is not None else (placed, replaced)


def sort_iteration(script: Script, loop: ast.For) -> Edits:
    """Make a loop over a dictionary or a set iterate over its sorted entries."""
    iterated = loop.iter
    unordered = isinstance(iterated, (ast.Set, ast.SetComp, ast.Name)) or (
        isinstance(iterated, ast.Call)
        and (
            (isinstance(iterated.func, ast.Attribute) and iterated.func.attr in ("items", "keys"))
            or (isinstance(iterated.func, ast.Name) and iterated.func.id == "set")
        )
    )
    edit = script.replacing(iterated, f"sorted({script.place(iterated).text})") if unordered else None
    return (edit,) if edit is not None else None


def batch_send_recv(script: Script, first: ast.stmt, second: ast.stmt) -> Edits:
    """Replace a ``recv(x, src=a)`` and a ``send(y, dst=b)`` directly after each other by one batched exchange."""
    distributed = torch_distributed_name(script)
    parts = [_parse_send_recv(script, one) for one in (first, second)]
    if distributed is None or parts[0] is None or parts[1] is None or parts[0][0] == parts[1][0]:
        return None
    operations = ", ".join(
        f"{distributed}.P2POp({distributed}.i{name}, {tensor}, {peer})" for name, tensor, peer in filter(None, parts)
    )
    indent, end = _indent(script, first), _end_offset(script, second)
    if indent is None:
        return None
    text = f"for work in {distributed}.batch_isend_irecv([{operations}]):\n{indent}    work.wait()"
    return _replace_range(script, script.place(first).start, end, text)


def _parse_send_recv(script: Script, statement: ast.stmt) -> tuple[str, str, str] | None:
    """``("recv", "x", "a")`` for ``dist.recv(x, src=a)``."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    name = script.qualified(call.func) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or name not in ("torch.distributed.recv", "torch.distributed.send"):
        return None
    given = [*call.args, *(one.value for one in call.keywords if one.arg in ("tensor", "src", "dst"))]
    if len(given) != 2 or len(call.args) + len(call.keywords) != 2:
        return None
    return name.rpartition(".")[2], script.place(given[0]).text, script.place(given[1]).text


def torch_distributed_name(script: Script) -> str | None:
    """The name by which the script can refer to ``torch.distributed``; None if it imports neither that nor torch."""
    for node in script.nodes(ast.Import):
        for alias in node.names:
            if alias.name == "torch.distributed" and alias.asname:
                return alias.asname
    plain = any(alias.name == "torch" for node in script.nodes(ast.Import) for alias in node.names)
    return "torch.distributed" if plain else None


# Lines


def _is_elif(script: Script, branch: ast.If) -> bool:
    above = script.parent(branch)  # an `if` nested in an `else:` is indented further
    return isinstance(above, ast.If) and branch in above.orelse and branch.col_offset == above.col_offset


def _indent(script: Script, statement: ast.stmt) -> str | None:
    """The indentation of a statement; None if anything else precedes it on its line."""
    start = script.place(statement).start
    line = script.source.line_start(script.source.line_of(start))
    before = script.source.data[line:start].decode("utf-8", "replace")
    return before if not before.strip() else None


def _lines(script: Script, statement: ast.stmt) -> str | None:
    """A statement's lines with indentation; None if it shares its line or contains a multi-line string."""
    indent = _indent(script, statement)
    spanning = any(
        isinstance(node, (ast.Constant, ast.JoinedStr)) and node.lineno != node.end_lineno
        for node in ast.walk(statement)
        if not isinstance(node, ast.Constant) or isinstance(node.value, (str, bytes))
    )
    return f"{indent}{script.place(statement).text}\n" if indent is not None and not spanning else None


def _end_offset(script: Script, statement: ast.stmt) -> int:
    return script.place(statement).end


def _shift_indent(text: str, inner_indent: str, outer_indent: str) -> str:
    return "".join(
        outer_indent + line.removeprefix(inner_indent) if line.strip() else line
        for line in text.splitlines(keepends=True)
    )


def _replace_range(script: Script, start: int, end: int, text: str) -> Edits:
    return (script.source.place(start, end).edit(text),) if script.editable else None


def _replace_lines(script: Script, first: ast.stmt, last: ast.stmt, text: str) -> Edits:
    """Replace whole statements by lines that include their indentation; the trailing newline is kept."""
    start = script.source.line_start(script.place(first).line)
    return _replace_range(script, start, _end_offset(script, last), text.rstrip("\n"))
