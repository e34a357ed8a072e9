"""What the names of a condition were computed from, by which ranks are told apart; and how a loop is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.rehearsal.conditions import conditions_around_stack
from gonogo.evidence.rehearsal.rank_divergence import depends_on_rank
from gonogo.finding.frame import Frame

_CASES = {
    "two lines earlier": ("stop = rank == 0 and step > 3\nif stop:\n    HERE()", True),
    "two names away": ("main = dist.get_rank() == 0\nlogs = main and step % 10 == 0\nif logs:\n    HERE()", True),
    "an attribute": ("def f(self):\n    self.first = self.rank == 0\n    if self.first:\n        HERE()", True),
    "of a pair": ("save, every = is_main_process(), 5\nif save:\n    HERE()", True),
    "by the walrus": ("if (first := get_rank() < 1) and step:\n    HERE()", True),
    "another name": ("rank = 0\nstop = loss > 3\nif stop:\n    HERE()", False),
    "given anew": ("stop = rank == 0\nstop = loss > 3\nif stop:\n    HERE()", False),
    "given later": ("if stop:\n    HERE()\nstop = rank == 0", False),
    "of another function": ("def g():\n    stop = rank == 0\ndef f(stop):\n    if stop:\n        HERE()", False),
}


@pytest.mark.parametrize(("source", "asks"), _CASES.values(), ids=_CASES)
def test_a_condition_is_followed_to_where_its_names_were_computed(tmp_path: Path, source: str, asks: bool) -> None:
    (guard,) = _guards(tmp_path, source)
    assert depends_on_rank(guard.texts) == asks


def _guards(folder: Path, source: str) -> list:  # type: ignore[type-arg]
    path = folder / "train.py"
    path.write_text(source)
    line = 1 + source.splitlines().index(next(one for one in source.splitlines() if "HERE" in one))
    return list(conditions_around_stack([Frame(str(path), line, "f", "", "user")]))


def test_a_loop_knows_the_conditions_by_which_it_is_left(tmp_path: Path) -> None:
    source = """\
for step in range(9):
    HERE()
    stop = rank == 0 and step > 3
    if stop:
        break
    if step > limit:
        return
    if loss > 3:
        continue
"""
    (loop,) = _guards(tmp_path, source)
    assert [(one.line, one.text) for one in loop.exits] == [(4, "stop"), (6, "step > limit")]
    assert [depends_on_rank(one.texts) for one in loop.exits] == [True, False]
