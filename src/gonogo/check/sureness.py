"""How sure a finding is of this run: what holds by unknown versions, unreached code or an open condition is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Script
from gonogo.finding import Certainty, Finding, Text

SURENESS = {Certainty.CERTAIN: 3, Certainty.LIKELY: 2, Certainty.POSSIBLE: 1}

_NOT_REACHED = Text(
    "nothing that this launch starts calls that code, as far as names tell",
    "按名称追踪，此次启动的程序没有调用这段代码",
)
_CONDITION = Text("`{test}` holds, under which it stands (line {line})", "它所处的条件 `{test}` 成立（第 {line} 行）")
_CONDITION_FAILS = Text(
    "`{test}` (line {line}), under which it stands, does not hold here",
    "它所处的条件 `{test}`（第 {line} 行）在此处不成立",
)
_OPENED = Text(
    "The program opens the config itself (line {line}): that it hands it over whole",
    "程序自己打开该配置（第 {line} 行）：它把配置原样交出",
)
_IN_TEST = Text("a launch runs this file of tests", "有启动命令运行这个测试文件")
_TEST = re.compile(r"(^|[/\\])(test_[^/\\]*|[^/\\]*_test|conftest)\.py$")
"""Files that a test runner starts, which skips and selects what stands in them."""
_OF_RANKS = re.compile(r"rank|main_process|process_zero|master|should_save|world_size|is_initialized|__name__")
"""Tests that some rank passes: that not all do is what such findings are about."""
_OF_STEPS = re.compile(r"step|epoch|iter|batch_idx|idx\b")
"""A loop comes to them sooner or later."""
_OF_DEEPSPEED = re.compile(r"deepspeed|zero3|zero_3|zero_stage")


def as_far_as_it_runs(found: Sequence[Finding], run: Run) -> list[Finding]:
    """What stands in code that the launch never reaches is merely possible; under a condition, likely at most."""
    scripts = {script.source.path: script for script in run.scripts}
    return [_in_code(one, scripts[one.spans[0].path], run) if _may_sink(one, scripts) else one for one in found]


def as_far_as_read(found: Sequence[Finding], run: Run) -> list[Finding]:
    """Of a config that the program opens itself, what its usual reader would make of it is not certain."""
    if run.launch is None or all(one.certainty is not Certainty.CERTAIN for one in found):
        return list(found)
    line = _opening(run)
    if line is None:
        return list(found)
    return [_less(one, Certainty.LIKELY, _OPENED.format(line=line)) for one in found]


def _may_sink(finding: Finding, scripts: dict[str, Script]) -> bool:
    return finding.certainty is not Certainty.POSSIBLE and bool(finding.spans) and finding.spans[0].path in scripts


def _less(finding: Finding, certainty: Certainty, why: Text) -> Finding:
    if SURENESS[finding.certainty] <= SURENESS[certainty]:
        return finding
    return replace(finding, certainty=certainty, confirm=(*finding.confirm, why))


def _in_code(finding: Finding, script: Script, run: Run) -> Finding:
    line = finding.spans[0].line
    if run.launch is None and _TEST.search(script.source.path):
        return _less(finding, Certainty.POSSIBLE, _IN_TEST)
    if run.launch is not None and not run.reached.holds(script.source.path, line):
        return _less(finding, Certainty.POSSIBLE, _NOT_REACHED)
    if finding.certainty is not Certainty.CERTAIN:
        return finding
    for test in _tests_of(script, line):
        truth = _truth(script, test, run)
        if truth is True:
            continue
        told = {"test": ast.unparse(test)[:60], "line": test.lineno}
        if truth is False:
            return _less(finding, Certainty.POSSIBLE, _CONDITION_FAILS.format(**told))
        return _less(finding, Certainty.LIKELY, _CONDITION.format(**told))
    return finding


def _tests_of(script: Script, line: int) -> Iterator[ast.expr]:
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


def _truth(script: Script, test: ast.expr, run: Run) -> bool | None:
    """Whether a condition holds in this run; None where that depends on what the files do not tell."""
    known = script.field(test)
    if known.truth is not None:
        return known.truth
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        written = ast.unparse(test.operand)
        if _OF_RANKS.search(written):
            return True
        inner = _truth(script, test.operand, run)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        parts = [_truth(script, one, run) for one in test.values]
        decisive = isinstance(test.op, ast.Or)
        return decisive if decisive in parts else None if None in parts else not decisive
    written = ast.unparse(test)
    if _OF_RANKS.search(written) or (isinstance(test, ast.Compare) and _OF_STEPS.search(written)):
        return True
    if _OF_DEEPSPEED.search(written.lower()) and run.deepspeed_on:
        return True
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return run.arguments.get(name).truth if name else None


def _opening(run: Run) -> int | None:
    """The line where the program opens the file that its option names, as in ``open(args.deepspeed)``."""
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


_OTHER_VERSIONS = Text(
    "this Python's versions were taken for the run's, which no file tells: gonogo check --environment FILE",
    "运行所用的版本没有文件说明，这里按当前 Python 的版本处理：可用 gonogo check --environment 文件 指定",
)


def as_far_as_told(found: Sequence[Finding], told: Sequence[Finding]) -> list[Finding]:
    """What holds by this Python's versions alone is merely possible; ``told`` is what is found without them."""
    sure = {(finding.parameter, finding.cause.en, finding.spans[:1]): finding.certainty for finding in told}
    placed = {(finding.parameter, finding.spans[:1]): finding.certainty for finding in told}
    answers = []
    for finding in found:
        place = (finding.parameter, finding.spans[:1])
        certainty = sure.get((finding.parameter, finding.cause.en, finding.spans[:1]), placed.get(place))
        if certainty is None:
            certainty = Certainty.POSSIBLE
        if SURENESS[certainty] < SURENESS[finding.certainty]:
            finding = replace(finding, certainty=certainty, confirm=(*finding.confirm, _OTHER_VERSIONS))
        answers.append(finding)
    return answers
