"""What is decided at one line of a program is followed to another by names, conditions, calls and returns."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.rehearsal.influence import Influence, ProgramLine

LEADS = {
    "a name": "x = ask()  # start\ny = x + 1\nfail(y)  # end\n",
    "a condition": "if ask():  # start\n    fail()  # end\n",
    "the other branch": "if ask():  # start\n    pass\nelse:\n    fail()  # end\n",
    "a flag": "bad = 0\nif ask():  # start\n    bad += 1\nz = 0\nif bad:\n    fail()  # end\n",
    "a return": "def f():\n    return ask()  # start\n\n\ny = f()\nfail(y)  # end\n",
    "an early return": "def f():\n    if ask():  # start\n        return\n    fail()  # end\n",
    "a return of a guard": "def f():\n    if ask():  # start\n        return None\n    return 1\n\nfail(f())  # end\n",
    "a break": "for i in x:\n    if ask():  # start\n        break\n    fail()  # end\n",
    "an attribute": (
        "class A:\n    def __init__(self):\n        self.kept = ask()  # start\n\n"
        "    def go(self):\n        fail(self.kept)  # end\n"
    ),
    "a method": "class A:\n    def f(self):\n        return ask()  # start\n\n"
    "    def g(self):\n        fail(self.f())  # end\n",
    "an argument": "def g(v):\n    fail(v)  # end\n\n\nx = ask()  # start\ng(x)\n",
    "a keyword": "def g(a, v=1):\n    fail(v)  # end\n\n\nx = ask()  # start\ng(0, v=x)\n",
    "an object that is called upon": (
        "class W:\n    def see(self, v):\n        if v > 1:\n            self.bad = 1\n\n\n"
        "w = W()\nx = ask()  # start\nw.see(x)\nif w.bad:\n    fail()  # end\n"
    ),
    "a list that grows": "rows = []\nrows.append(ask())  # start\nfail(rows)  # end\n",
    "an item": "table = {}\ntable['a'] = ask()  # start\nfail(table)  # end\n",
    "an import that may fail": "try:\n    import a  # start\nexcept ImportError:\n    a = None\nfail(a)  # end\n",
    "what a handler sets": "has = True\ntry:\n    ask()  # start\nexcept OSError:\n    has = False\n"
    "if has:\n    fail()  # end\n",
    "a global": "def f():\n    global state\n    state = ask()  # start\n\n\ndef g():\n    fail(state)  # end\n",
    "a generator": "def f():\n    yield ask()  # start\n\n\nfor one in f():\n    fail(one)  # end\n",
    "the statement itself": "fail(ask())  # start  # end\n",
}
LEADS_NOT = {
    "another name": "x = ask()  # start\ny = 2\nfail(y)  # end\n",
    "what is printed": "x = ask()  # start\nprint(x)\nfail(1)  # end\n",
    "a condition beside it": "if ask():  # start\n    a = 1\nfail(b)  # end\n",
    "the name of another function": "def f():\n    x = ask()  # start\n\ndef g():\n    x = 1\n    fail(x)  # end\n",
    "a condition that raises": "if ask():  # start\n    raise ValueError\nfail(1)  # end\n",
    "a module that is called upon": "import dist\ndist.send(ask())  # start\nfail(dist)  # end\n",
    "what stands above": "fail(x)  # end\ny = ask()  # start\n",
}


def places(folder: Path, text: str) -> tuple[ProgramLine, ProgramLine]:
    path = folder / "train.py"
    path.write_text(text)
    lines = text.splitlines()
    return tuple(  # type: ignore[return-value]
        ProgramLine(str(path), next(n for n, line in enumerate(lines, 1) if f"# {mark}" in line))
        for mark in ("start", "end")
    )


@pytest.mark.parametrize("how", LEADS)
def test_what_is_decided_is_followed(tmp_path: Path, how: str) -> None:
    start, end = places(tmp_path, LEADS[how])
    assert Influence(start, may_raise=True).is_influenced(end)


@pytest.mark.parametrize("how", LEADS_NOT)
def test_what_is_not_is_left(tmp_path: Path, how: str) -> None:
    start, end = places(tmp_path, LEADS_NOT[how])
    assert not Influence(start, may_raise=True).is_influenced(end)


def test_other_files_are_followed_too(tmp_path: Path) -> None:
    loader = tmp_path / "loader.py"
    loader.write_text("def get():\n    return ask()\n")
    path = tmp_path / "train.py"
    path.write_text("from loader import get\nrows = get()\nfail(rows)\n")
    assert Influence(ProgramLine(str(loader), 2), [str(path)]).is_influenced(ProgramLine(str(path), 3))
    assert not Influence(ProgramLine(str(loader), 2)).is_influenced(ProgramLine(str(path), 3))


def test_a_loop_that_is_left_has_another_number_of_rounds(tmp_path: Path) -> None:
    text = "for step in steps:\n    reduce()  # end\n    if ask():  # start\n        break\nlast()\n"
    start, end = places(tmp_path, text)
    assert not Influence(start).decides(end)
    assert Influence(start, rounds=True).decides(end)
    assert Influence(start, rounds=True).decides(ProgramLine(start.path, 5))


@pytest.mark.parametrize("data", [b"def f(:\n", b"\x00", b"", b"x = (" * 400])
def test_what_is_no_program_decides_nothing(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.py"
    path.write_bytes(data)
    assert not Influence(ProgramLine(str(path), 1)).is_influenced(ProgramLine(str(path), 1))
    assert not Influence(ProgramLine(str(tmp_path / "none.py"), 1)).is_influenced(
        ProgramLine(str(tmp_path / "none.py"), 1)
    )
