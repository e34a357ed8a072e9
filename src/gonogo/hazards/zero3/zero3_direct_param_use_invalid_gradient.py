import ast
from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.rehearsal.failures import failed_ranks, frame_spans, innermost_frame
from gonogo.evidence.script.parameters import ParameterUse, parameter_uses
from gonogo.hazards.facts.zero_usage import (
    has_peft,
    is_behind_option,
    is_inside_module_class,
    is_under_zero_condition,
    source_text,
    stage_span,
)
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, RehearsalRecord, Run, Script, Text, translated
from gonogo.hazards.zero3._zero3_in_log import find_error_or_line, is_under_zero3

_DETACHING_ATTRIBUTES = frozenset({"item", "detach", "detach_", "data", "tolist", "numpy"})
_LOGGING_FUNCTIONS = frozenset({"print", "float", "int", "log", "info", "debug", "warning", "append", "add_scalar"})
_MAX_DEPTH = 4


class Zero3DirectParamUseInvalidGradient(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """Loss terms that are computed from parameters, such as ``sum(p.sum() for p in m.parameters()) * 0.0``."""
        if run.zero_stage != 3:
            return
        for use in script.cached_result(parameter_uses):
            if use.kind == "passed" or use.gathered or use.no_grad or use.registered or use.own:
                continue
            if use.kind == "weight-reduced" and is_inside_module_class(script, use.node):
                continue
            where = _find_loss_statement(script, use)
            if where is None or is_under_zero_condition(script, use.node):
                continue
            yield self._zero_term_finding(script, run, use, where)

    def _zero_term_finding(self, script: Script, run: Run, use: ParameterUse, loss_statement: ast.stmt) -> Finding:
        direct = use.zero is not None or loss_statement is use.statement
        edits = use.zero.removal(script) if use.zero is not None else ()
        small = has_peft(run) or is_behind_option(script, use.node)
        fix = self.fix(translated("Remove the term that is multiplied by zero from the loss"), *edits, safe=False)
        return self.finding(
            self.texts["term_cause"].format(term=source_text(script, use.node), module=source_text(script, use.module)),
            certainty=Certainty.CERTAIN if direct and not small else Certainty.LIKELY,
            spans=(
                script.place(use.node).span(translated("empty under ZeRO-3")),
                script.place(loss_statement).span(translated("the loss includes it"))
                if loss_statement is not use.statement
                else None,
                stage_span(run),
            ),
            fixes=fix if edits else None,
            confirm=(
                translated("A parameter that is trained has more elements than stage3_param_persistence_threshold"),
            )
            if small
            else (),
        )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A gradient of shape [0] for a whole parameter, in a backward under ZeRO-3."""
        for failed in failed_ranks(record):
            failure = failed.failure
            invalid = self.patterns["invalid"].search(failure.message)
            if invalid is None or failed.zero_stage not in (None, 3):
                continue
            term = innermost_frame(failure.origin, "user")
            parameter = next((operand.parameter for operand in failure.operands if operand.parameter), None)
            yield self.finding(
                self.texts["cause_in_rehearsal"].format(
                    function=invalid.group(1),
                    shape=invalid.group(2),
                    parameter=Text(f"the parameter {parameter}", f"参数 {parameter}")
                    if parameter
                    else translated("a parameter"),
                    place=Text(f" It did so in: {term.text}", f"所在代码：{term.text}") if term and term.text else "",
                ),
                spans=frame_spans(
                    (term, translated("parameters are used here, partitioned")),
                    (failure.innermost("user"), translated("the backward that fails")),
                ),
                ranks=failed.ranks,
                module=failure.module,
                parameter=parameter,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A gradient of shape [0] for a whole parameter, or the other way round."""
        evidence = find_error_or_line(log, self.patterns["invalid_gradient"], "RuntimeError")
        if evidence is None:
            return
        found = self.patterns["invalid_gradient"].search(
            evidence.message if isinstance(evidence, LoggedError) else evidence.text
        )
        function = (found and found.group(1)) or "?"
        stage3 = is_under_zero3(log)
        if stage3 is False:
            certainty = Certainty.POSSIBLE
        else:
            certainty = Certainty.CERTAIN if stage3 or function.startswith("Sum") else Certainty.LIKELY
        yield self._log_finding(evidence, function, certainty)

    def _log_finding(self, evidence: LoggedError | LineMatch, function: str, certainty: Certainty) -> Finding:
        return self.log_finding(
            evidence,
            self.texts["empty_gradient_cause"].format(function=function),
            certainty=certainty,
            confirm=self.texts["confirm"],
        )


def _find_loss_statement(script: Script, use: ParameterUse) -> ast.stmt | None:
    """The statement in which a use becomes part of a loss; None if it is detached, only logged, or not in a loss."""
    if use.zero is not None:
        return use.zero.statements[-1] if use.zero.statements else use.statement
    if _is_detached(script, use.node):
        return None
    return _loss_of(script, use.statement, _MAX_DEPTH)


def _is_detached(script: Script, node: ast.expr) -> bool:
    child: ast.AST = node
    for each in script.ancestors(node):
        if isinstance(each, ast.stmt):
            return False
        if isinstance(each, ast.Attribute) and each.attr in _DETACHING_ATTRIBUTES:
            return True
        if isinstance(each, ast.Call) and child is not each.func:
            func = each.func
            name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
            if name in _LOGGING_FUNCTIONS:
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
        return _find_loss_from_calls(script, function.name, depth)
    names = list(_assigned_target_names(statement))
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


def _find_loss_from_calls(script: Script, name: str, depth: int) -> ast.stmt | None:
    """The statement in which the result of one of the script's functions becomes part of a loss."""
    for call in script.calls(name, f"*.{name}") if depth else ():
        where = script.statement(call.node)
        if where is None or _is_detached(script, call.node):
            continue
        found = _loss_of(script, where, depth - 1)
        if found is not None:
            return found
    return None


def _assigned_target_names(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement assigns; of attributes the last part."""
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
