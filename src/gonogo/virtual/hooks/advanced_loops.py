"""Advances a training loop's counter, to reach saves and evaluations that lie beyond the rehearsed steps.

After the last step the counter is set to the number at which a test holds (``step == len(loader)``), so that the
program itself does what it would do then. A test that can't be made true this way is reported if its phase was not
reached.
"""

from __future__ import annotations

import ast
import copy
import linecache
import sys
from functools import cache
from types import FrameType
from typing import Any, NamedTuple

from gonogo.evidence.rehearsal.record import AdvancedLoop
from gonogo.evidence.script.flows.loop_tests import (
    LoopTest,
    conjuncts,
    counter_increment_between,
    counter_names,
    dotted_name,
    is_arithmetic,
    loop_target_names,
    loop_tests_after,
    names_in,
)
from gonogo.evidence.script.identifiers import split_identifier
from gonogo.virtual.frame_variables import local_variables, set_local_variable
from gonogo.virtual.stack import frame_of

_COUNTER_NAME = "gonogo_counter"
_MAX_TESTS = 8
"""At most this many tests are reached per run."""
_MAX_TEXT_LENGTH = 100


class _CounterTarget(NamedTuple):
    """The number to which a counter is set to make a test hold."""

    counter: str
    value: int
    before: int
    sure: bool
    """Whether the loop is certain to reach that number."""


class LoopAdvancer:
    """Advances loop counters so that tests such as ``step % 500 == 0`` hold. ``unmet``: tests that never hold."""

    def __init__(self) -> None:
        self.led: list[AdvancedLoop] = []
        self.unmet: list[tuple[str, AdvancedLoop]] = []
        """With the phase that a test leads to."""
        self.waiting = False
        """Whether the loop is to make one more step, for another test."""
        self._done: set[tuple[str, int]] = set()

    def after_step(self) -> None:
        """Advance the loop to the next test, after the last requested step or an additional one."""
        self.waiting = False
        given: dict[str, int] = {}
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if _is_user_function(frame.f_code.co_filename, frame.f_code.co_name):
                self._advance_counters(frame, given)
            frame = frame.f_back

    def _advance_counters(self, frame: FrameType, counter_values: dict[str, int]) -> None:
        """Set the frame's counters, each once per step; a test that needs another number waits for the next step."""
        path = frame.f_code.co_filename
        tree = parse_file(path)
        if tree is None:
            return
        for test in loop_tests_after(tree, frame.f_lineno):
            key = (path, test.node.lineno)
            if key in self._done or len(self._done) >= _MAX_TESTS:
                continue
            met = _find_counter_value(frame, test)
            place = f"{path}:{test.node.lineno}"
            shown = linecache.getline(path, test.node.lineno).strip()[:_MAX_TEXT_LENGTH]
            if met is None:
                self._done.add(key)
                self.unmet.append((test.kind, AdvancedLoop(place, shown)))
            elif met == "holds":
                self._done.add(key)
            elif isinstance(met, _CounterTarget):
                if met.counter in counter_values:
                    self.waiting = self.waiting or met.value != counter_values[met.counter]
                    continue
                self._done.add(key)
                if _set_counter(frame, met.counter, met.value):
                    counter_values[met.counter] = met.value
                    self.led.append(AdvancedLoop(place, shown, met.counter, met.before, met.value, sure=met.sure))

    def is_caused_by_advance(self, error: BaseException) -> bool:
        """Whether an exception is due to a counter's changed value: the failing line uses it to index or divide."""
        if not self.led or not isinstance(error, LookupError | ZeroDivisionError | OverflowError):
            return False
        last = None
        trace = error.__traceback__
        while trace is not None:
            if _is_user_function(trace.tb_frame.f_code.co_filename, trace.tb_frame.f_code.co_name):
                last = trace
            trace = trace.tb_next
        tree = parse_file(last.tb_frame.f_code.co_filename) if last is not None else None
        if last is None or tree is None:
            return False
        counters = {one.counter for one in self.led}
        return any(
            isinstance(node, ast.expr) and dotted_name(node) in counters
            for node in ast.walk(tree)
            if getattr(node, "lineno", 0) <= last.tb_lineno <= (getattr(node, "end_lineno", 0) or 0)
        )


@cache
def parse_file(path: str) -> ast.Module | None:
    """A file of Python; None if it can't be read or parsed."""
    try:
        with open(path, "rb") as file:
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


@cache
def _is_user_function(path: str, function: str) -> bool:
    frame = frame_of(path, 1, function)
    return frame is not None and frame.owner == "user"


def _find_counter_value(frame: FrameType, test: LoopTest) -> _CounterTarget | str | None:
    """The counter value at which a test holds; ``holds`` if it does already, ``never`` if the loop ends before.

    None if the test doesn't depend on exactly one counter.
    """
    counters = counter_names(test.loops)
    whole = test.node.test
    parts = [part for part in conjuncts(whole) if names_in(part) & counters]
    used = {name for part in parts for name in names_in(part) & counters}
    if not parts and all(any("rank" in split_identifier(name) for name in names_in(part)) for part in conjuncts(whole)):
        return "never"  # a rank is the same in each step
    if len(used) != 1 or not all(map(is_arithmetic, parts)):
        return None
    counter = used.pop()
    if any("rank" in split_identifier(name) for part in parts for name in names_in(part)):
        return None
    scope: dict[str, Any] = dict(local_variables(frame))
    now = _evaluate(ast.parse(counter, mode="eval").body, frame, scope)
    if type(now) is not int:
        return None
    codes = [
        _compile_expression(ast.Expression(_CounterSubstitution(counter).visit(copy.deepcopy(part)))) for part in parts
    ]
    ahead = counter_increment_between(test.loops, counter, frame.f_lineno, test.node)

    def condition_holds_at(number: int) -> bool:
        try:
            return all(eval(code, frame.f_globals, {**scope, _COUNTER_NAME: number}) for code in codes)
        except Exception:
            return False

    if condition_holds_at(now + ahead):
        return "holds"
    last, sure = _final_counter_value(frame, test, counter, scope)
    for number in _candidate_counter_values(parts, now + ahead, frame, scope):
        if last is not None and number > last:
            break
        if condition_holds_at(number):
            return _CounterTarget(counter, number - ahead, now, sure)
    return "never" if last is not None else None


class _CounterSubstitution(ast.NodeTransformer):
    """Replaces a loop counter in an expression by a variable that gonogo sets."""

    def __init__(self, counter: str) -> None:
        self._counter = counter

    def visit(self, node: ast.AST) -> Any:
        """Replace the counter; other nodes are visited as usual."""
        if isinstance(node, ast.expr) and dotted_name(node) == self._counter:
            return ast.copy_location(ast.Name(_COUNTER_NAME, ast.Load()), node)
        return self.generic_visit(node)


def _compile_expression(expression: ast.Expression) -> Any:
    return compile(ast.fix_missing_locations(expression), "<gonogo>", "eval")


def _evaluate(node: ast.expr, frame: FrameType, scope: dict[str, Any]) -> Any:
    """Evaluate an expression without calls to the program's code; None if it fails."""
    if not is_arithmetic(node):
        return None
    try:
        return eval(compile(ast.Expression(node), "<gonogo>", "eval"), frame.f_globals, scope)
    except Exception:
        return None


def _candidate_counter_values(parts: list[ast.expr], now: int, frame: FrameType, scope: dict[str, Any]) -> list[int]:
    """Counter values at which the tests may hold: near multiples of the numbers that occur in them."""
    named = {
        value
        for part in parts
        for node in ast.walk(part)
        if isinstance(node, ast.expr) and type(value := _evaluate(node, frame, scope)) is int and value > 0
    }
    found = set(range(now, now + 8))
    for number in named:
        for times in range(now // number, now // number + 4):
            found.update((times * number - 1, times * number, times * number + 1))
    return sorted(one for one in found if one >= now)


def _final_counter_value(
    frame: FrameType, test: LoopTest, counter: str, scope: dict[str, Any]
) -> tuple[int | None, bool]:
    """The last value of a counter, and whether the loop is certain to reach it; None if unknown."""
    for loop in test.loops:
        if isinstance(loop, ast.While) or counter not in loop_target_names(loop):
            continue
        given = loop.iter
        start = 0
        while isinstance(given, ast.Call) and given.args:
            name = dotted_name(given.func) or ""
            if name == "range":
                numbers = [_evaluate(one, frame, scope) for one in given.args]
                if not all(type(one) is int for one in numbers):
                    return None, False
                times = range(*numbers)
                return (times[-1], True) if times else (None, False)
            if name == "enumerate":
                first = [*given.args[1:], *(one.value for one in given.keywords if one.arg == "start")]
                start = _evaluate(first[0], frame, scope) if first else 0
            given = given.args[0]  # tqdm(…), enumerate(…)
        rows = _evaluate(given, frame, scope)
        try:
            return len(rows) + int(start) - 1, True
        except Exception:
            return None, False
    return None, False


def _set_counter(frame: FrameType, counter: str, value: int) -> bool:
    """Set a counter in a running frame."""
    owner, _, name = counter.rpartition(".")
    if owner:
        held = _evaluate(ast.parse(owner, mode="eval").body, frame, dict(local_variables(frame)))
        if held is None or type(getattr(held, name, None)) is not int:
            return False
        try:
            setattr(held, name, value)
        except Exception:
            return False
        return True
    code = frame.f_code
    if name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        set_local_variable(frame, name, value)
    else:
        frame.f_globals[name] = value
    return True
