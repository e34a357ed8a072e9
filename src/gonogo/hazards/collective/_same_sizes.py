"""Fixes that make a collective the same on all ranks: one dtype, or gradients for all parameters."""

import ast
from collections.abc import Iterator

from gonogo.evidence.rehearsal.rank_divergence import RankDivergence
from gonogo.hazards.facts.divergence_fixes import script_at
from gonogo.hazards.facts.zero_usage import is_engine
from gonogo.hazards.rule import Fix, Hazard, Run, translated

_SAME_DTYPE_FIX = translated("Make the tensor {dtype} on every rank")
_ALL_GRADIENTS = translated(
    "Add the sum of all parameters, multiplied by zero, to the loss, so that each has a gradient on every rank"
)


def same_dtype_fixes(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """Set the dtype of ``torch.tensor(…)``, which otherwise depends on each rank's own values."""
    types = {call.dtype for _, call in divergence.sides_in_calls if call.dtype}
    floating = next((name for name in sorted(types) if "float" in name), None)
    if len(types) < 2 or floating is None:
        return
    for _, call in divergence.sides_in_calls[:1]:
        frame = call.innermost("user")
        script = script_at(run, frame.path) if frame is not None else None
        if script is None or frame is None:
            return
        for each in script.calls("torch.distributed.*"):
            if not each.node.lineno <= frame.line <= (each.node.end_lineno or 0) or not each.node.args:
                continue
            made = script.bound_to(each.node.args[0])
            if isinstance(made, ast.Call) and script.qualified(made.func) in ("torch.tensor", "torch.as_tensor"):
                edit = script.setting_keyword(made, "dtype", f"torch.{floating.removeprefix('torch.')}")
                if edit is not None:
                    yield Hazard.fix(_SAME_DTYPE_FIX.format(dtype=floating), edit, safe=False)


def all_gradient_fixes(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """Add all parameters times zero to the loss, under ZeRO-1 and ZeRO-2, where each rank has whole parameters."""
    if divergence.zero_stage == 3 or not any("reduce" in call.operator for _, call in divergence.sides_in_calls):
        return
    for _, call in divergence.sides_in_calls[:1]:
        frame = call.innermost("user")
        script = script_at(run, frame.path) if frame is not None else None
        if script is None or frame is None:
            return
        for each in script.calls("*.backward"):
            statement = script.statement(each.node)
            loss = each.node.args[0] if each.node.args else None
            if loss is None or not is_engine(script, each.receiver) or statement is None or each.receiver is None:
                continue
            if statement.lineno <= frame.line <= (statement.end_lineno or 0):
                engine = script.place(each.receiver).text
                term = f" + 0.0 * sum(parameter.sum() for parameter in {engine}.parameters())"
                text = script.place(loss).text
                text = text if isinstance(loss, (ast.Name, ast.Call, ast.Attribute, ast.BinOp)) else f"({text})"
                edit = script.replacing(loss, text + term)
                if edit is not None:
                    yield Hazard.fix(_ALL_GRADIENTS, edit, safe=False)
