"""Code that runs only where a setting names it: ``if sampler == "loss-second-moment": return LossSecondMoment()``."""

import ast

from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Script


def is_selected_by_string(script: Script, node: ast.AST, run: Run) -> bool:
    """Whether the class or function around a node is used only if a setting has a certain string value."""
    outer = [one for one in script.ancestors(node) if isinstance(one, ast.ClassDef | ast.FunctionDef)]
    if not outer:
        return False
    name = outer[-1].name
    uses = [
        (other, use)
        for other in (run.scripts or (script,))
        for kind in (ast.Name, ast.Attribute)
        for use in other.nodes(kind)
        if (use.id if isinstance(use, ast.Name) else use.attr if isinstance(use, ast.Attribute) else "") == name
        and isinstance(getattr(use, "ctx", None), ast.Load)
        and outer[-1] not in other.ancestors(use)
    ]
    return bool(uses) and all(any(map(_compares_with_string, other.guarded_by(use))) for other, use in uses)


def _compares_with_string(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.Eq)
        and any(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in (test.left, *test.comparators))
        and not any(isinstance(one, ast.Name) and one.id == "__name__" for one in (test.left, *test.comparators))
    )
