"""Changes of one value in the user's own loop that runs out of memory; what is learned stays the same.

Evaluation: results kept per batch are moved to host memory, or the batch gets smaller. Optimizer step: PyTorch's
fused implementation avoids temporary copies of all gradients.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.evidence.script.identifiers import last_name
from gonogo.finding import Finding, translated
from gonogo.hazards.facts.divergence_fixes import script_at
from gonogo.trials.cure.candidate import Candidate

if TYPE_CHECKING:
    from gonogo.evidence.rehearsal.record import MemoryShortage
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import Script

_HOST_TRANSFER_CALLS = frozenset({"cpu", "item", "tolist", "numpy"})
_FUSED_OPTIMIZERS = tuple(f"torch.optim.{name}" for name in ("Adam", "AdamW", "SGD", "Adagrad"))
_ACCUMULATING_METHODS = frozenset({"append", "extend"})
_MOVE_TO_HOST = translated("move the outputs kept from each evaluation batch to host memory (line {line})")
_SMALLER_EVAL_BATCH = translated("evaluate {size} samples at a time (batch_size was {before})")
_USE_FUSED = translated("fused=True for {name}")


def loop_candidates(finding: Finding, shortage: MemoryShortage, run: Run) -> Iterator[Candidate]:
    """Changes of a loop that may make it fit, depending on where it ran out of memory."""
    if shortage.phase == "evaluate":
        for frame in reversed(shortage.frames):
            script = script_at(run, frame.path) if frame.owner == "user" else None
            loop = _loop_at(script, frame.line) if script is not None else None
            if script is not None and loop is not None:
                yield from _host_transfer_candidates(finding, script, loop)
                yield from _smaller_batch_candidates(finding, script, loop)
                return
    elif shortage.phase == "step":
        yield from _fused_optimizer_candidates(finding, run)


def _loop_at(script: Script, line: int) -> ast.For | None:
    """The innermost ``for`` loop around a line, including the loop's own line."""
    around = [node for node in script.nodes(ast.For) if node.lineno <= line <= (node.end_lineno or node.lineno)]
    return max(around, key=lambda node: node.lineno, default=None)


def _host_transfer_candidates(finding: Finding, script: Script, loop: ast.For) -> Iterator[Candidate]:
    """Change ``kept.append(logits)`` to ``kept.append(logits.cpu())``."""
    for node in ast.walk(loop):
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or node.func.attr not in _ACCUMULATING_METHODS
        ):
            continue
        for given in node.args:
            called = {last_name(one.func) for one in ast.walk(given) if isinstance(one, ast.Call)}
            if called & _HOST_TRANSFER_CALLS or isinstance(given, ast.Constant | ast.Dict | ast.List | ast.Tuple):
                continue
            text = script.place(given).text
            plain = isinstance(given, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
            edit = script.replacing(given, f"{text}.cpu()" if plain else f"({text}).cpu()")
            if edit is not None:
                yield Candidate(finding, _MOVE_TO_HOST.format(line=given.lineno), (edit,), size=1, kind="host")


def _smaller_batch_candidates(finding: Finding, script: Script, loop: ast.For) -> Iterator[Candidate]:
    """Reduce the ``batch_size`` of the loop's DataLoader by a factor of 4, repeatedly, down to 1."""
    given: ast.expr = loop.iter
    while isinstance(given, ast.Call) and given.args and last_name(given.func) != "DataLoader":
        given = given.args[0]  # enumerate(…), tqdm(…)
    made = given if isinstance(given, ast.Call) else script.bound_to(given)
    if not isinstance(made, ast.Call) or last_name(made.func) != "DataLoader":
        return
    value = next((keyword.value for keyword in made.keywords if keyword.arg == "batch_size"), None)
    if value is None and len(made.args) > 1:
        value = made.args[1]
    known = script.field(value).value if value is not None else None
    if value is None or type(known) is not int:
        return
    size = known
    while size > 1:
        size = max(1, size // 4)
        edit = script.replacing(value, str(size))
        if edit is not None:
            title = _SMALLER_EVAL_BATCH.format(size=size, before=known)
            yield Candidate(finding, title, (edit,), size=1, kind="evaluation batch")


def _fused_optimizer_candidates(finding: Finding, run: Run) -> Iterator[Candidate]:
    for script in run.scripts:
        for call in script.calls(*_FUSED_OPTIMIZERS):
            if any(keyword.arg in ("fused", "foreach", "capturable", None) for keyword in call.node.keywords):
                continue
            edit = script.setting_keyword(call, "fused", "True")
            if edit is not None:
                yield Candidate(finding, _USE_FUSED.format(name=call.method), (edit,), size=1, kind="fused")
