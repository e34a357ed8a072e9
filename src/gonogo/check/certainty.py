"""Lower the certainty of findings that depend on assumed versions, unreached code, or unknown conditions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from gonogo.evidence.run import Run
from gonogo.evidence.script.identifiers import (
    contains_words,
    is_main_guard,
    is_option,
    last_name,
    split_identifier,
    uses_name,
)
from gonogo.evidence.script.nodes import is_none
from gonogo.evidence.script.script import Script
from gonogo.finding import Certainty, Finding, Text, translated
from gonogo.hazards.facts.rank_tests import contains_rank_name

CERTAINTY_ORDER = {Certainty.CERTAIN: 3, Certainty.LIKELY: 2, Certainty.POSSIBLE: 1}

_CODE_NOT_CALLED = translated("as far as names can be traced, nothing that this launch starts calls this code")
_CONDITION_HOLDS = translated("the condition `{test}` (line {line}), under which this code runs, is true")
_CONDITION_FAILS = translated("the condition `{test}` (line {line}), without which this code runs, is false here")
_CONFIG_OPENED_BY_PROGRAM = translated(
    "The program opens the config itself (line {line}): check that it passes the config on unchanged"
)
_IN_TEST_FILE = translated("a launch command runs this test file")
_TEST_FILE_PATTERN = re.compile(r"(^|[/\\])(test_[^/\\]*|[^/\\]*_test|conftest)\.py$")
"""Files that are run by a test runner, which selects and skips the code in them."""
_RANK_NAMES = ("should_save", "world_size", "is_initialized")
"""Names, besides those of a rank, that mark a condition as true on some ranks only, which counts as reached."""
_COUNTER_WORDS = frozenset(
    {"step", "steps", "epoch", "epochs", "iter", "iters", "iteration", "iterations", "itr", "idx"}
)
_LIMIT_WORDS = frozenset({"max", "min", "num", "warmup", "every", "per", "save", "log", "logging", "eval"})
"""Words that mark a number of steps as a setting (``max_steps``), not as a loop's counter."""
_DEEPSPEED_NAMES = ("deepspeed", "zero_3", "zero_stage")


def downgrade_unreached(findings: Sequence[Finding], run: Run) -> list[Finding]:
    """Downgrade findings in code that the launch never reaches to possible, and under a condition to likely."""
    scripts = {script.source.path: script for script in run.scripts}
    return [
        _downgrade_by_conditions(one, scripts[one.spans[0].path], run) if _is_downgradable(one, scripts) else one
        for one in findings
    ]


def downgrade_rewritten_config(findings: Sequence[Finding], run: Run) -> list[Finding]:
    """Downgrade findings in a config that the program opens itself, since it may change the config before use."""
    if run.launch is None or all(one.certainty is not Certainty.CERTAIN for one in findings):
        return list(findings)
    line = _config_open_line(run)
    if line is None:
        return list(findings)
    return [_downgrade_finding(one, Certainty.LIKELY, _CONFIG_OPENED_BY_PROGRAM.format(line=line)) for one in findings]


def _is_downgradable(finding: Finding, scripts: dict[str, Script]) -> bool:
    return finding.certainty is not Certainty.POSSIBLE and bool(finding.spans) and finding.spans[0].path in scripts


def _downgrade_finding(finding: Finding, certainty: Certainty, reason: Text) -> Finding:
    if CERTAINTY_ORDER[finding.certainty] <= CERTAINTY_ORDER[certainty]:
        return finding
    return replace(finding, certainty=certainty, confirm=(*finding.confirm, reason))


def _downgrade_by_conditions(finding: Finding, script: Script, run: Run) -> Finding:
    line = finding.spans[0].line
    if run.launch is None and _TEST_FILE_PATTERN.search(script.source.path):
        return _downgrade_finding(finding, Certainty.POSSIBLE, _IN_TEST_FILE)
    if run.launch is not None and not run.reachable_code.is_reachable(script.source.path, line):
        return _downgrade_finding(finding, Certainty.POSSIBLE, _CODE_NOT_CALLED)
    if finding.certainty is not Certainty.CERTAIN:
        return finding
    for test in _enclosing_conditions(script, line):
        truth = _condition_holds(script, test, run)
        if truth is True:
            continue
        certainty, condition = (
            (Certainty.POSSIBLE, _CONDITION_FAILS) if truth is False else (Certainty.LIKELY, _CONDITION_HOLDS)
        )
        return _downgrade_finding(finding, certainty, condition.format(test=ast.unparse(test)[:60], line=test.lineno))
    return finding


def _enclosing_conditions(script: Script, line: int) -> Iterator[ast.expr]:
    """The tests that must hold for the statement on a line to run, within its function."""
    node: ast.AST | None = script.tree
    innermost: ast.stmt | None = None
    while node is not None:
        inner = next(
            (one for one in _statements_in(node) if one.lineno <= line <= (one.end_lineno or one.lineno)), None
        )
        innermost, node = inner or innermost, inner
    if innermost is not None and not isinstance(innermost, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield from script.guarded_by(innermost)


def _statements_in(node: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _statements_in(child)


def _condition_holds(script: Script, test: ast.expr, run: Run) -> bool | None:
    """Whether a condition holds in this run; None if the files don't tell."""
    known = script.field(test)
    if known.truth is not None:
        return known.truth
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _negation_holds(script, test.operand, run)
    if isinstance(test, ast.BoolOp):
        return _combine_conditions(
            [_condition_holds(script, one, run) for one in test.values], any_of=isinstance(test.op, ast.Or)
        )
    if _depends_on_rank(test) or _tests_step_count(test):
        return True
    if run.uses_deepspeed and (requested := _tests_for_deepspeed(test)) is not None:
        return requested
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return run.arguments.get(name).truth if name else None


def _negation_holds(script: Script, test: ast.expr, run: Run) -> bool | None:
    """Whether ``not test`` holds in this run. A test of the rank or step is true for some and false for others."""
    known = script.field(test).truth
    if known is None and isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _condition_holds(script, test.operand, run)
    if known is None and isinstance(test, ast.BoolOp):
        return _combine_conditions(
            [_negation_holds(script, one, run) for one in test.values], any_of=isinstance(test.op, ast.And)
        )
    if known is None and (_depends_on_rank(test) or _tests_step_count(test)):
        return True
    truth = _condition_holds(script, test, run)
    return None if truth is None else not truth


def _combine_conditions(parts: list[bool | None], *, any_of: bool) -> bool | None:
    return any_of if any_of in parts else None if None in parts else not any_of


def _depends_on_rank(test: ast.expr) -> bool:
    return contains_rank_name(test) or uses_name(test, *_RANK_NAMES) or is_main_guard(test)


def _tests_step_count(test: ast.expr) -> bool:
    """Whether a test compares a loop's counter, so that it becomes true at some step."""
    return isinstance(test, ast.Compare) and any(
        not _COUNTER_WORDS.isdisjoint(named := split_identifier(last_name(each))) and _LIMIT_WORDS.isdisjoint(named)
        for each in ast.walk(test)
        if isinstance(each, (ast.Name, ast.Attribute)) and not is_option(each)
    )


def _tests_for_deepspeed(test: ast.expr) -> bool | None:
    """Whether a test holds if DeepSpeed is used; None if it is not about DeepSpeed, or about more than that."""
    texts = [each.value for each in ast.walk(test) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    by_value = any(contains_words(text, *_DEEPSPEED_NAMES) for text in texts)
    if not by_value and not uses_name(test, *_DEEPSPEED_NAMES):
        return None
    op = test.ops[0] if isinstance(test, ast.Compare) else None
    if isinstance(test, ast.Compare) and is_none(test.comparators[0]):
        return isinstance(op, (ast.IsNot, ast.NotEq))
    if isinstance(op, (ast.NotEq, ast.NotIn)):
        return False if by_value else None
    return True


def _config_open_line(run: Run) -> int | None:
    """The line on which the program opens the config file named by its own option, as in ``open(args.deepspeed)``."""
    if run.launch is None or run.config_field.place is None:
        return None
    options = run.launch.options
    given = [name for name in options.names() if options.get(name).place == run.config_field.place]
    for script in run.scripts[:1]:
        for call in script.calls("open"):
            node = call.node.args[0] if call.node.args else None
            if isinstance(node, ast.Attribute) and node.attr in given:
                return call.place.line
    return None


_ASSUMED_VERSIONS = translated(
    "no file says which versions the run uses, so those installed in this Python were assumed: give the right "
    "ones with gonogo check --environment FILE"
)


def downgrade_assumed_versions(findings: Sequence[Finding], certain: Sequence[Finding]) -> list[Finding]:
    """Downgrade what only this Python's package versions show to possible. ``certain``: findings without them."""
    sure = {(finding.parameter, finding.cause.en, finding.spans[:1]): finding.certainty for finding in certain}
    placed = {(finding.parameter, finding.spans[:1]): finding.certainty for finding in certain}
    answers = []
    for finding in findings:
        place = (finding.parameter, finding.spans[:1])
        certainty = sure.get((finding.parameter, finding.cause.en, finding.spans[:1]), placed.get(place))
        if certainty is None:
            certainty = Certainty.POSSIBLE
        if CERTAINTY_ORDER[certainty] < CERTAINTY_ORDER[finding.certainty]:
            finding = replace(finding, certainty=certainty, confirm=(*finding.confirm, _ASSUMED_VERSIONS))
        answers.append(finding)
    return answers


_OTHER_DECLARATION = translated(
    "Find out from which file the environment is installed: {other} lists packages too, and with those this "
    "problem does not occur"
)


def downgrade_other_declarations(findings: Sequence[Finding], other: str, certain: Sequence[Finding]) -> list[Finding]:
    """Downgrade what only one of several files that declare the environment shows to likely.

    ``certain``: the findings if the environment is made from the file ``other``.
    """
    there = {(finding.hazard, finding.parameter) for finding in certain}
    reason = _OTHER_DECLARATION.format(other=other)
    return [
        one if (one.hazard, one.parameter) in there else _downgrade_finding(one, Certainty.LIKELY, reason)
        for one in findings
    ]
