"""The rewritings that bring ranks together again: the code before, and after."""

from __future__ import annotations

import ast
from collections.abc import Callable
from textwrap import dedent

import pytest

from gonogo.evidence.script import rewriting
from gonogo.evidence.script.project import read_script
from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile
from gonogo.trials.cure.copy import apply_edits_to


def rewritten(before: str, change: Callable[[Script], rewriting.Edits]) -> str | None:
    """The code with the change made; None where it can't be."""
    source = SourceFile("train.py", dedent(before).lstrip("\n").encode())
    edits = change(read_script(source))
    if edits is None:
        return None
    after = apply_edits_to(source.data, sorted(edits, key=lambda edit: (edit.start, edit.end))).decode()
    ast.parse(after)
    return after


def branch(script: Script) -> ast.If:
    return next(iter(script.nodes(ast.If)))


def hoist_from_branch(name: str) -> Callable[[Script], rewriting.Edits]:
    """The statement that calls ``name`` leaves the branch."""

    def change(script: Script) -> rewriting.Edits:
        call = next(call for call in script.calls() if ast.unparse(call.node.func).endswith(name))
        inner = branch(script)
        statement = script.statement(call.node)
        while statement is not None and script.index.block(statement)[0] not in (  # type: ignore[index]
            inner.body,
            inner.orelse,
            script.index.block(inner)[0],  # type: ignore[index]
        ):
            parent = script.parent(statement)
            statement = parent if isinstance(parent, ast.stmt) else None
        return rewriting.hoist_from_branch(script, inner, statement) if statement is not None else None

    return change


@pytest.mark.parametrize(
    ("before", "name", "after"),
    [
        (
            "if rank == 0:\n    engine.save_checkpoint('out')\nprint(1)\n",
            "save_checkpoint",
            "engine.save_checkpoint('out')\nprint(1)\n",
        ),
        (
            "if rank == 0:\n    engine.save_checkpoint('out')\n    print('saved')\n",
            "save_checkpoint",
            "engine.save_checkpoint('out')\nif rank == 0:\n    print('saved')\n",
        ),
        ("if rank == 0:\n    write()\n    dist.barrier()\n", "barrier", "if rank == 0:\n    write()\ndist.barrier()\n"),
        (
            "def f():\n    if rank == 0:\n        write()\n    else:\n        dist.barrier()\n    go()\n",
            "barrier",
            "def f():\n    if rank == 0:\n        write()\n    dist.barrier()\n    go()\n",
        ),
        (
            "if rank == 0:\n    with gathered(model):\n        print(norm(model))\n",
            "gathered",
            "with gathered(model):\n    if rank == 0:\n        print(norm(model))\n",
        ),
        (
            "def f():\n    if not main:\n        return\n    with no_grad():\n        y = model(x)\n    print(y)\n",
            "model",
            "def f():\n    with no_grad():\n        y = model(x)\n    if not main:\n        return\n    print(y)\n",
        ),
    ],
)
def test_what_one_rank_does_all_do(before: str, name: str, after: str) -> None:
    assert rewritten(before, hoist_from_branch(name)) == after


def test_a_call_inside_of_another_gets_a_name() -> None:
    before = "if rank == 0:\n    print(step, evaluate(engine))\n"

    def change(script: Script) -> rewriting.Edits:
        call = next(script.calls("*evaluate"))
        return rewriting.hoist_call(script, branch(script), call.node, "evaluated")

    assert rewritten(before, change) == "evaluated = evaluate(engine)\nif rank == 0:\n    print(step, evaluated)\n"
    made_there = "if rank == 0:\n    data = load()\n    print(evaluate(data))\n"
    assert rewritten(made_there, change) is None  # what it is given is made in the branch


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if long:\n    x = x + f(x)\n", "x = x + (f(x)) * float(bool(long))\n"),
        ("if a or b:\n    loss -= g()\n", "loss = loss - (g()) * float(bool(a or b))\n"),
        ("if long:\n    x = f(x)\n", None),
        ("if long:\n    x = x + 1\nelse:\n    y = 1\n", None),
    ],
)
def test_a_term_is_computed_on_all_ranks(before: str, after: str | None) -> None:
    assert rewritten(before, lambda script: rewriting.multiply_by_test(script, branch(script))) == after


def test_ranks_decide_together() -> None:
    before = """
    import torch
    import torch.distributed as dist

    for batch in loader:
        if bad(batch):
            continue
        step(batch)
    """
    after = rewritten(before, lambda script: rewriting.synchronize_test(script, branch(script), "engine.device"))
    assert after is not None
    assert "    on_any_rank = torch.tensor(float(bool(bad(batch))), device=engine.device)\n" in after
    assert "    dist.all_reduce(on_any_rank, op=dist.ReduceOp.MAX)\n    if on_any_rank.item():\n" in after


def test_loops_of_the_same_length_and_order() -> None:
    before = "import torch\n\nfor step, batch in enumerate(loader):\n    train(batch)\n"

    def longest(script: Script) -> rewriting.Edits:
        loop = script.loops[0]
        assert isinstance(loop, ast.For)
        return rewriting.cycle_to_longest_loader(script, loop, "engine.device")

    after = rewritten(before, longest)
    assert after is not None
    assert "import itertools\n" in after
    again = "itertools.chain.from_iterable(itertools.repeat(loader))"
    assert f"for step, batch in enumerate(itertools.islice({again}, int(most_batches))):" in after

    def ordered(script: Script) -> rewriting.Edits:
        loop = script.loops[0]
        assert isinstance(loop, ast.For)
        return rewriting.sort_iteration(script, loop)

    assert rewritten("for k, v in d.items():\n    f(k)\n", ordered) == "for k, v in sorted(d.items()):\n    f(k)\n"
    assert rewritten("for k in range(3):\n    f(k)\n", ordered) is None


def test_neighbours_send_and_receive_at_once() -> None:
    before = "import torch\nimport torch.distributed as dist\n\ndist.recv(x, src=peer)\ndist.send(y, dst=peer)\n"

    def change(script: Script) -> rewriting.Edits:
        first, second = list(script.nodes(ast.Expr))[-2:]
        return rewriting.batch_send_recv(script, first, second)

    after = rewritten(before, change)
    assert after is not None
    operations = "dist.P2POp(dist.irecv, x, peer), dist.P2POp(dist.isend, y, peer)"
    assert f"for work in dist.batch_isend_irecv([{operations}]):\n    work.wait()\n" in after
