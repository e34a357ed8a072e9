"""Parameters that a loss is computed from, rather than from what their modules answer."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gonogo.evidence.run import Run
from gonogo.evidence.script.parameters import ParameterUse, parameter_uses
from gonogo.evidence.script.script import Script
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.facts.zero_files import has_peft, in_module, is_optional, stage_span, tests_the_stage, text_of
from gonogo.hazards.hazard import Hazard

_DETACHED = frozenset({"item", "detach", "detach_", "data", "tolist", "numpy"})
_SHOWN = frozenset({"print", "float", "int", "log", "info", "debug", "warning", "append", "add_scalar"})
_DEEPEST = 4


def loss_terms(hazard: Hazard, script: Script, run: Run, cure: tuple[Text, ...]) -> Iterator[Finding]:
    """Terms of a loss that are computed from parameters themselves, under ZeRO-3."""
    if run.zero_stage != 3:
        return
    for use in script.once(parameter_uses):
        if use.kind == "passed" or use.gathered or use.no_grad or use.registered or use.own:
            continue
        if use.kind == "weight-reduced" and in_module(script, use.node):
            continue
        where = _becomes_loss(script, use)
        if where is None or tests_the_stage(script, use.node):
            continue
        yield _finding(hazard, script, run, use, where, cure)


def _finding(
    hazard: Hazard, script: Script, run: Run, use: ParameterUse, where: ast.stmt, cure: tuple[Text, ...]
) -> Finding:
    direct = use.zero is not None or where is use.statement
    edits = use.zero.removal(script) if use.zero is not None else ()
    small = has_peft(run) or is_optional(script, use.node)
    fix = hazard.fix(
        Text("Take the term that is multiplied with zero out of the loss", "从损失中去掉乘以零的项"), *edits, safe=False
    )
    return hazard.finding(
        Text(
            en="`{term}` reads the parameters of `{module}` where no module's forward runs. ZeRO-3 has them "
            "partitioned then, each an empty tensor of shape [0], and the backward ends with “returned an invalid "
            "gradient … got [0]”.",
            zh="`{term}` 在模块 forward 之外读取 `{module}` 的参数。此时 ZeRO-3 已将其切分，每个参数都是形状 [0] 的空张"
            "量，反向会以 “returned an invalid gradient … got [0]” 结束。",
        ).format(term=text_of(script, use.node), module=text_of(script, use.module)),
        certainty=Certainty.CERTAIN if direct and not small else Certainty.LIKELY,
        cure=cure,
        spans=(
            script.place(use.node).span(Text("empty under ZeRO-3", "ZeRO-3 下为空")),
            script.place(where).span(Text("the loss takes it in", "损失在此包含它"))
            if where is not use.statement
            else None,
            stage_span(run),
        ),
        fixes=(fix,) if edits else (),
        confirm=(
            Text(
                "A parameter that is trained has more elements than stage3_param_persistence_threshold",
                "至少有一个被训练的参数，其元素数超过 stage3_param_persistence_threshold",
            ),
        )
        if small
        else (),
    )


def _becomes_loss(script: Script, use: ParameterUse) -> ast.stmt | None:
    """The statement by which a use becomes part of a loss; None where it is but shown or not used for one."""
    if use.zero is not None:
        return use.zero.statements[-1] if use.zero.statements else use.statement
    if _is_detached(script, use.node):
        return None
    return _loss_of(script, use.statement, _DEEPEST)


def _is_detached(script: Script, node: ast.expr) -> bool:
    child: ast.AST = node
    for each in script.ancestors(node):
        if isinstance(each, ast.stmt):
            return False
        if isinstance(each, ast.Attribute) and each.attr in _DETACHED:
            return True
        if isinstance(each, ast.Call) and child is not each.func:
            func = each.func
            name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
            if name in _SHOWN:
                return True
        child = each
    return False


def _loss_of(script: Script, statement: ast.stmt, depth: int) -> ast.stmt | None:
    function = script.enclosing_function(statement)
    if isinstance(statement, ast.Return):
        if function is None:
            return None
        if "loss" in function.name:
            return statement
        return _loss_of_calls(script, function.name, depth)
    names = list(_bound(statement))
    if any("loss" in name.lower() for name in names):
        return statement
    if depth == 0:
        return None
    for name in names:
        for use in script.nodes(ast.Name):
            if use.id != name or not isinstance(use.ctx, ast.Load) or script.enclosing_function(use) is not function:
                continue
            where = script.statement(use)
            if where is None or where is statement or where.lineno < statement.lineno or _is_detached(script, use):
                continue
            found = _loss_of(script, where, depth - 1)
            if found is not None:
                return found
    return None


def _loss_of_calls(script: Script, name: str, depth: int) -> ast.stmt | None:
    """The loss that the answer of one of the script's functions becomes part of."""
    for call in script.calls(name, f"*.{name}") if depth else ():
        where = script.statement(call.node)
        if where is None or _is_detached(script, call.node):
            continue
        found = _loss_of(script, where, depth - 1)
        if found is not None:
            return found
    return None


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement gives values, the last part of each."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        targets = [statement.target]
    for target in targets:
        for each in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            if isinstance(each, ast.Name):
                yield each.id
            elif isinstance(each, ast.Attribute):
                yield each.attr
