"""Fixes for diverging ranks: rewrites of the program at the point where the ranks diverge."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from gonogo.evidence.rehearsal.rank_divergence import RankDivergence
from gonogo.evidence.run import Run
from gonogo.evidence.script import rewriting
from gonogo.evidence.script.identifiers import last_name
from gonogo.evidence.script.project import read_script
from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile, display_path
from gonogo.finding import Applicability, Edit, Fix, Text, UserError, translated
from gonogo.finding.divergence import EnclosingCondition, Side
from gonogo.finding.frame import Frame
from gonogo.hazards.hazard import Hazard

_CALL_ON_ALL_RANKS = translated("Let all ranks make the call, outside of `{test}`")
_TOGETHER = translated("Let the ranks decide `{test}` together, so that it is true on all as soon as it is true on one")
_MULTIPLY_BY_ZERO = translated("Compute the term on all ranks, multiplied by zero where `{test}` does not hold")
_REMOVE_CONDITION = translated("Run the module in every case: leave out `if {test}`")
_PAD_TO_LONGEST = translated(
    "Let all ranks read as many batches as the longest loader has: the shorter ones start over"
)
_ITERATE_SORTED = translated("Iterate over the entries in sorted order, the same on every rank")
_BATCH_SEND_RECV = translated("Send and receive together, with batch_isend_irecv")
_CREATE_ALL_GROUPS = translated("Create all groups on every rank: new_subgroups_by_enumeration")


def script_at(run: Run, path: str) -> Script | None:
    """The user's script at an absolute path; None if it can't be read."""
    for script in run.scripts:
        if os.path.realpath(script.source.path) == os.path.realpath(path):
            return script
    try:
        source = SourceFile.read(path)
    except UserError:
        return None
    source.path = display_path(path)
    script = read_script(source)
    return script if script.tree is not None else None


def fix_rank_conditional_call(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """Let all ranks make the call that only one makes."""
    if divergence.rank_condition is None:
        return
    side, guard = divergence.rank_condition
    found = _find_if_statement(run, guard)
    if found is None:
        return
    script, branch = found
    statement, call = _find_statement_reaching_call(script, branch, side, guard)
    if statement is None:
        return
    edits = None
    own = getattr(statement, "value", None)
    if call is not None and isinstance(statement, (ast.Expr, ast.Assign)) and own is not call:
        name = f"{last_name(call)}_on_all_ranks"
        edits = rewriting.hoist_call(script, branch, call, name)
    edits = edits or rewriting.hoist_from_branch(script, branch, statement)
    yield from _fix_from_edits(_CALL_ON_ALL_RANKS.format(test=_condition_text(script, branch)), edits)


def fix_divergent_branch(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """Compute a divergent branch on all ranks, let all ranks take it, or remove the condition."""
    gathers = divergence.gathers_weights
    own = any(divergence.conditions_of_side_alone(side) for side, _ in divergence.sides_in_calls)
    for side, _ in divergence.sides_in_calls:
        # In a loop, the ranks may diverge at the same test but in different iterations.
        shared = [guard for guard in reversed(side.guards) if guard.kind in ("if", "else")]
        for guard in divergence.conditions_of_side_alone(side) if own else shared:
            found = _find_if_statement(run, guard)
            if found is None:
                continue
            script, branch = found
            test = _condition_text(script, branch)
            if gathers or guard.function == "forward":
                yield from _fix_from_edits(
                    _MULTIPLY_BY_ZERO.format(test=test), rewriting.multiply_by_test(script, branch)
                )
                if _contains_only(branch.body, ast.Continue, ast.Pass):
                    edit = script.removing_statement(branch)
                    yield from _fix_from_edits(
                        _REMOVE_CONDITION.format(test=test), (edit,) if edit is not None else None
                    )
            else:
                yield from _fix_from_edits(
                    _TOGETHER.format(test=test),
                    rewriting.synchronize_test(script, branch, _device_expression(script, branch)),
                )


def fix_divergent_loop(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """Let ranks agree when to leave or continue a loop, or give them equally many batches."""
    for _, loop in _diverging_loops(divergence, run):
        script, node = loop
        for branch in (each for each in ast.walk(node) if isinstance(each, ast.If)):
            if branch.body and isinstance(branch.body[-1], (ast.Break, ast.Continue)):
                yield from _fix_from_edits(
                    _TOGETHER.format(test=_condition_text(script, branch)),
                    rewriting.synchronize_test(script, branch, _device_expression(script, branch)),
                )
    for _, (script, node) in _diverging_loops(divergence, run):
        if isinstance(node, ast.For):
            yield from _fix_from_edits(
                _PAD_TO_LONGEST, rewriting.cycle_to_longest_loader(script, node, _device_expression(script, node))
            )


def fix_dict_order(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """Sort a loop over a dictionary whose order differs between ranks."""
    for _, (script, node) in _diverging_loops(divergence, run):
        if isinstance(node, ast.For):
            yield from _fix_from_edits(_ITERATE_SORTED, rewriting.sort_iteration(script, node))


def fix_recv_before_send(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """Reorder ranks that all receive before they send."""
    for _, call in divergence.sides_in_calls[:1]:
        frame = call.innermost("user")
        script = script_at(run, frame.path) if frame is not None else None
        for node in script.nodes(ast.Expr) if script is not None and frame is not None else ():
            assert script is not None
            assert frame is not None
            if node.lineno <= frame.line <= (node.end_lineno or node.lineno):
                block, _, at = script.index.block(node) or ([], "", 0)
                for second in block[at + 1 : at + 2]:
                    yield from _fix_from_edits(_BATCH_SEND_RECV, rewriting.batch_send_recv(script, node, second))


def fix_new_group_membership(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """Create all groups on every rank, where ``new_group`` is called only for a rank's own members."""
    for _, call in divergence.sides_in_calls[:1]:
        frame = call.innermost("user")
        script = script_at(run, frame.path) if frame is not None else None
        if script is None or frame is None:
            return
        for made in script.calls("torch.distributed.new_group"):
            members = made.node.args[0] if len(made.node.args) == 1 and not made.node.keywords else None
            choice = script.bound_to(members) if members is not None else None
            if made.node.lineno != frame.line or not isinstance(choice, ast.IfExp):
                continue
            groups = [script.place(one).text for one in _branches_of_conditional(choice)]
            if all(isinstance(one, ast.List) for one in _branches_of_conditional(choice)):
                name = rewriting.torch_distributed_name(script)
                text = f"{name}.new_subgroups_by_enumeration([{', '.join(groups)}])[0]"
                edit = script.replacing(made.node, text) if name is not None else None
                yield from _fix_from_edits(_CREATE_ALL_GROUPS, (edit,) if edit is not None else None)


def _branches_of_conditional(choice: ast.expr) -> list[ast.expr]:
    if isinstance(choice, ast.IfExp):
        return [*_branches_of_conditional(choice.body), *_branches_of_conditional(choice.orelse)]
    return [choice]


def _diverging_loops(
    divergence: RankDivergence, run: Run
) -> Iterator[tuple[EnclosingCondition, tuple[Script, ast.For | ast.While]]]:
    seen = set()
    for side in divergence.sides:
        for guard in reversed(side.guards):
            if guard.kind in ("if", "else") or (guard.path, guard.line) in seen:
                continue
            seen.add((guard.path, guard.line))
            script = script_at(run, guard.path)
            for node in script.loops if script is not None else ():
                if script is not None and node.lineno == guard.line and isinstance(node, (ast.For, ast.While)):
                    yield guard, (script, node)


def _find_if_statement(run: Run, guard: EnclosingCondition) -> tuple[Script, ast.If] | None:
    script = script_at(run, guard.path)
    if script is None:
        return None
    node = next((each for each in script.nodes(ast.If) if each.lineno == guard.line), None)
    return (script, node) if node is not None else None


def _find_statement_reaching_call(
    script: Script, branch: ast.If, side: Side, guard: EnclosingCondition
) -> tuple[ast.stmt | None, ast.Call | None]:
    """The statement in the branch's own block by which a side reaches its call, and the call in it."""
    frames = side.call.frames if side.call is not None else ()
    at = next((n for n, f in enumerate(frames) if f.path == guard.path and f.function == guard.function), None)
    if at is None:
        return None, None
    line = frames[at].line
    after = [*branch.body, *branch.orelse]
    found = script.index.block(branch)
    if found is not None and branch.body and isinstance(branch.body[-1], (ast.Return, ast.Continue)):
        after += found[0][found[0].index(branch) + 1 :]
    statement = next((each for each in after if each.lineno <= line <= (each.end_lineno or each.lineno)), None)
    if statement is None:
        return None, None
    return statement, _find_call(statement, line, frames[at + 1 :])


def _find_call(statement: ast.stmt, line: int, inner_frames: tuple[Frame, ...]) -> ast.Call | None:
    names = {frame.function for frame in inner_frames}
    calls = [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return next((call for call in calls if last_name(call.func) in names), None)


def _contains_only(body: list[ast.stmt], *kinds: type[ast.stmt]) -> bool:
    return all(isinstance(each, kinds) for each in body)


def _condition_text(script: Script, branch: ast.If) -> str:
    return " ".join(script.place(branch.test).text.split())


def _device_expression(script: Script, node: ast.AST) -> str:
    """The device for a tensor that the ranks exchange: the engine's, if there is one."""
    function = script.enclosing_function(node)
    for call in script.calls("deepspeed.initialize"):
        statement = script.statement(call.node)
        if script.enclosing_function(call.node) is function and isinstance(statement, ast.Assign):
            target = statement.targets[0]
            first = target.elts[0] if isinstance(target, ast.Tuple) else target
            if isinstance(first, ast.Name):
                return f"{first.id}.device"
    return "torch.cuda.current_device()"


def _fix_from_edits(title: Text, edits: tuple[Edit, ...] | None) -> Iterator[Fix]:
    fix = Hazard.fix(title, *edits, safe=False) if edits else None
    if fix is not None and fix.applicability is not Applicability.MANUAL:
        yield fix
