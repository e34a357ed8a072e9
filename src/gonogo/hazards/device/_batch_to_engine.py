"""A fix that moves the batch to the engine's device where the program passes it to the engine."""

import ast
from collections.abc import Iterator

from gonogo.evidence.rehearsal.failures import failed_ranks
from gonogo.hazards.facts.divergence_fixes import script_at
from gonogo.hazards.facts.zero_usage import is_engine
from gonogo.hazards.rule import Edit, Fix, Hazard, RehearsalRecord, Run, Script, translated

_MOVE_INPUTS_FIX = translated("Move the engine's inputs to its device")


def move_batch_to_engine(record: RehearsalRecord, run: Run) -> Iterator[Fix]:
    """Change ``engine(batch)`` to ``engine(batch.to(engine.device))`` if an operator got an input on the CPU."""
    for failed in failed_ranks(record)[:1]:
        operands = failed.failure.operands
        if not any(one.device == "cpu" and one.kind not in ("parameter", "buffer", "optimizer") for one in operands):
            return
        for frame in failed.failure.frames:
            script = script_at(run, frame.path) if frame.owner == "user" else None
            for call in script.nodes(ast.Call) if script is not None else ():
                if script is None or not call.lineno <= frame.line <= (call.end_lineno or call.lineno):
                    continue
                if isinstance(call.func, ast.Name) and is_engine(script, call.func):
                    edits = _argument_move_edits(script, call, f"{call.func.id}.device")
                    if edits:
                        yield Hazard.fix(_MOVE_INPUTS_FIX, *edits, safe=False)
                    return


def _argument_move_edits(script: Script, call: ast.Call, device: str) -> list[Edit | None]:
    edits: list[Edit | None] = []
    for value in (*call.args, *(keyword.value for keyword in call.keywords)):
        if isinstance(value, (ast.Constant, ast.Starred)):
            continue
        text = script.place(value).text
        unpacked = any(keyword.arg is None and keyword.value is value for keyword in call.keywords)
        if unpacked:
            text = f"{{name: value.to({device}) for name, value in {text}.items()}}"
        else:
            text = f"{text if isinstance(value, (ast.Name, ast.Call, ast.Attribute, ast.Subscript)) else f'({text})'}"
            text += f".to({device})"
        edits.append(script.replacing(value, text))
    return edits
