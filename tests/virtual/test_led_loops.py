"""Loops are led to what they do by their counter: at their end, once in so many steps, after an epoch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gonogo.virtual.hooks.advanced_loops import LoopAdvancer

_AT_THE_END = """
for step, row in enumerate(rows, start=1):
    stepped()
    if step == len(rows):
        save(step)
"""
_ONCE_IN_MANY = """
total = 0
for row in rows:
    stepped()
    total += 1
    if total % every == 0 and rank == 0:
        save(total)
"""
_OF_AN_OBJECT = """
class State: pass
state = State()
state.step = 0
def train():
    for row in rows:
        stepped()
        state.step += 1
        if not (state.step + 1) % every:
            checkpoint(state.step)
train()
"""
_OF_EPOCHS = """
def train():
    for epoch in range(20):
        for step in range(30):
            stepped()
        if (epoch + 1) % 5 == 0:
            save(epoch)
train()
"""
_SEVERAL = """
for step in range(1000):
    stepped()
    if step % 100 == 99:
        evaluate(step)
    if step == 999:
        save(step)
    if step % 7 == 1:
        validate(step)
"""
_THROUGH_A_FUNCTION = """
def finish(step):
    write(step)
def write(step):
    save(step)
for step in tqdm(range(500)):
    stepped()
    if step >= 400:
        finish(step)
"""
_WITHIN_A_TEST = """
total = 0
for step in range(64):
    if (step + 1) % 2 == 0:
        stepped()
        total += 1
        if total % 8 == 0:
            save(total)
"""


class _Ended(Exception):
    """The data is over, or the rehearsal's time."""


def _run(folder: Path, source: str, steps: int = 2, **given: Any) -> tuple[LoopAdvancer, list[tuple[str, int]]]:
    """Run a program that makes ``steps`` steps and as many more as are wanted; what it did, with its counter."""
    path = folder / "train.py"
    path.write_text(source)
    leader, done, made = LoopAdvancer(), [], [0]

    def stepped() -> None:
        if made[0] >= steps and not leader.waiting:
            raise _Ended
        made[0] += 1
        if made[0] >= steps:
            leader.after_step()

    def doing(what: str) -> Callable[[int], None]:
        return lambda number: done.append((what, number))

    names = {name: doing(name) for name in ("save", "evaluate", "validate", "checkpoint")}
    scope = {"stepped": stepped, "rows": list(range(64)), "every": 1000, "rank": 0, "tqdm": iter, **names, **given}
    with contextlib.suppress(_Ended):
        exec(compile(source, str(path), "exec"), scope)
    return leader, done


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(_AT_THE_END, [("save", 64)], id="after its last row"),
        pytest.param(_ONCE_IN_MANY, [("save", 1000)], id="once in a thousand steps, on one rank"),
        pytest.param(_OF_AN_OBJECT, [("checkpoint", 999)], id="by an attribute"),
        pytest.param(_THROUGH_A_FUNCTION, [("save", 400)], id="through functions of the file"),
        pytest.param(_WITHIN_A_TEST, [("save", 8)], id="within the test of an accumulation"),
    ],
)
def test_a_loop_is_led_to_what_it_does(tmp_path: Path, source: str, expected: list[tuple[str, int]]) -> None:
    leader, done = _run(tmp_path, source)
    assert done == expected
    assert [one.sure for one in leader.led] == ["total" not in source and "state" not in source]
    assert not leader.unmet


def test_what_comes_after_an_epoch_is_reached_too(tmp_path: Path) -> None:
    leader, _ = _run(tmp_path, _OF_EPOCHS)
    assert [(one.counter, one.before, one.value, one.sure) for one in leader.led] == [("epoch", 0, 4, True)]


def test_tests_that_need_different_numbers_are_led_to_one_after_another(tmp_path: Path) -> None:
    leader, done = _run(tmp_path, _SEVERAL)
    assert ("evaluate", 99) in done
    assert ("save", 999) in done
    assert any(what == "validate" and number % 7 == 1 for what, number in done)
    assert not leader.waiting


@pytest.mark.parametrize(
    "source",
    [
        "for step in range(100):\n    stepped()\n    if step == 500:\n        save(step)\n",
        "for step in range(100):\n    stepped()\n    if step % 10 == 0:\n        print(step)\n",
        "for step in range(100):\n    stepped()\n    if step % 1 == 0:\n        save(step)\n",
        "for step in range(100):\n    if step == 50:\n        save(step)\n    stepped()\n",
        "for step in range(100):\n    stepped()\n    if get_rank() == 0:\n        save(step)\n",
    ],
    ids=["never reached", "neither saves nor evaluates", "reached anyhow", "before the step", "of the rank"],
)
def test_what_needs_no_leading_is_left_alone(tmp_path: Path, source: str) -> None:
    leader, _ = _run(tmp_path, source, print=lambda number: None, get_rank=lambda: 1)
    assert not leader.led
    assert not leader.unmet


@pytest.mark.parametrize("test", ["loss() < best", "step % every_of(rank) == 0", "(step + rank) % 5 == 3"])
def test_what_hangs_on_more_than_a_counter_is_told(tmp_path: Path, test: str) -> None:
    source = f"for step in range(100):\n    stepped()\n    if {test}:\n        save(step)\n"
    leader, _ = _run(tmp_path, source, loss=lambda: 3, best=2, every_of=lambda rank: 1000)
    assert not leader.led
    assert [(kind, one.place) for kind, one in leader.unmet] == [("save", f"{tmp_path / 'train.py'}:3")]


def test_an_exception_that_comes_of_the_number_is_not_the_programs(tmp_path: Path) -> None:
    source = """
kept = []
for step in range(100):
    stepped()
    kept.append(step)
    if step == 99:
        save(kept[{index}])
"""
    for index, blamed in (("step", True), ("5", False)):
        path = tmp_path / f"{index}.py"
        leader = LoopAdvancer()
        code = source.format(index=index)
        path.write_text(code)
        with pytest.raises(IndexError) as raised:
            exec(compile(code, str(path), "exec"), {"stepped": leader.after_step, "save": print})
        assert leader.led
        assert leader.is_caused_by_advance(raised.value) == blamed
        assert not leader.is_caused_by_advance(AttributeError())
