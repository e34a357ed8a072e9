"""Fixes for a tower that only some ranks have input for: all ranks run it, on zeros if there is no input."""

import ast
import re
from collections.abc import Iterator

from gonogo.evidence.rehearsal.rank_divergence import RankDivergence
from gonogo.hazards.facts.divergence_fixes import script_at
from gonogo.hazards.rule import Fix, Hazard, Run, Script, translated

_RUN_ON_ZEROS = translated("If there is no {name}, run self.{module} on zeros and multiply its output by zero")
_TENSOR_SIZE_PATTERN = re.compile(r"\[(\d+(?:, \d+)*)\]$")


def dummy_input_fixes(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """Add an ``else`` that runs the tower on zeros to ``if pixels is not None: x = … self.tower(pixels) …``."""
    for side, _ in divergence.sides_in_calls:
        sizes = {name: match[1] for name, kind in side.batch if (match := _TENSOR_SIZE_PATTERN.search(kind))}
        for guard in divergence.conditions_of_side_alone(side):
            script = script_at(run, guard.path)
            for branch in script.nodes(ast.If) if script is not None else ():
                if script is not None and branch.lineno == guard.line:
                    yield from _add_else_fix(script, branch, sizes)


def _add_else_fix(script: Script, branch: ast.If, sizes: dict[str, str]) -> Iterator[Fix]:
    name = _tested_name(branch.test)
    statement = branch.body[-1]
    if name not in sizes or branch.orelse or not isinstance(statement, ast.Assign) or len(branch.body) != 1:
        return
    target = script.place(statement.targets[0]).text
    call = next(
        (
            each
            for each in ast.walk(statement.value)
            if isinstance(each, ast.Call) and _is_submodule_call_with(each, name)
        ),
        None,
    )
    if call is None or not isinstance(call.func, ast.Attribute):
        return
    zeros = f"torch.zeros({sizes[name]}, dtype={target}.dtype, device={target}.device)"
    place, inner = script.place(branch), script.place(statement)
    data = script.source.data
    outside = data[script.source.line_start(place.line) : place.start].decode()
    inside = data[script.source.line_start(inner.line) : inner.start].decode()
    if outside.strip() or inside.strip() or not script.imports("torch"):
        return
    text = f"\n{outside}else:\n{inside}{target} = {target} + 0.0 * {script.place(call.func).text}({zeros}).sum()"
    edit = script.source.place(place.end, place.end).edit(text)
    yield Hazard.fix(_RUN_ON_ZEROS.format(module=call.func.attr, name=name), edit, safe=False)


def _tested_name(test: ast.expr) -> str:
    """The name in the test ``name is not None`` or ``name``; empty for any other test."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot) and isinstance(test.left, ast.Name):
        return test.left.id
    return test.id if isinstance(test, ast.Name) else ""


def _is_submodule_call_with(call: ast.Call, name: str) -> bool:
    """Whether a call is ``self.module(name)``."""
    func = call.func
    of_self = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self"
    return of_self and len(call.args) == 1 and isinstance(call.args[0], ast.Name) and call.args[0].id == name
