"""The record of a rehearsal whose ranks parted, put together from what the exchange saw and the ranks wrote."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache

from msgspec.structs import replace

from gonogo.evidence.divergence import Call, Divergence, Guard, Side
from gonogo.evidence.frame import Frame
from gonogo.evidence.rehearsal import RankRecord

_TEXT_SHOWN = 120


def with_names(divergence: Divergence, records: Sequence[RankRecord]) -> Divergence:
    """The divergence with its parameters' names, and the conditions that its calls stand in."""
    names = {record.rank: record.parameter_names for record in records}

    def told(side: Side) -> Side:
        known = names.get(side.ranks[0], {})
        call = _named(side.call, known) if side.call is not None else None
        guards = tuple(guards_of(call.frames)) if call is not None else ()
        return replace(side, call=call, guards=guards, before=tuple(_named(one, known) for one in side.before))

    return replace(divergence, sides=tuple(map(told, divergence.sides)), apart=tuple(map(told, divergence.apart)))


def _named(call: Call, names: dict[int, str]) -> Call:
    return replace(call, parameters=tuple(names.get(int(number), f"#{number}") for number in call.parameters))


def settle(records: Sequence[RankRecord], divergence: Divergence) -> None:
    """Take back what ranks did after the call at which they parted: the real run never comes to it."""
    for record in records:
        on_side = next((side for side in divergence.sides if record.rank in side.ranks), None)
        if on_side is not None and on_side.call is not None and record.outcome in ("completed", "raised"):
            record.outcome = "diverged"
            record.failure = None


def guards_of(frames: Sequence[Frame]) -> Iterator[Guard]:
    """The conditions and loops of the user's code that a stack stands in, outermost first."""
    for frame in frames:
        if frame.owner == "user":
            yield from _guards_at(frame.path, frame.line)


@cache
def _guards_at(path: str, line: int) -> tuple[Guard, ...]:
    try:
        with open(path, "rb") as file:
            source = file.read()
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return ()
    return tuple(_walk(tree, path, line, source.decode(errors="replace")))


def _walk(node: ast.AST, path: str, line: int, source: str) -> Iterator[Guard]:
    for child in ast.iter_child_nodes(node):
        first, last = getattr(child, "lineno", None), getattr(child, "end_lineno", None)
        if first is None or last is None or not first <= line <= last:
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not _within(child, line):
            continue
        if isinstance(child, ast.If | ast.While):
            inside = _holds(child.body, line)
            beside = _holds(child.orelse, line)
            if inside or beside:
                is_elif = beside and isinstance(child, ast.If) and _is_elif(child)
                kind = "while" if isinstance(child, ast.While) else "if" if inside else "else"
                if not is_elif:
                    yield Guard(path, child.test.lineno, _text(source, child.test), kind)  # type: ignore[arg-type]
        elif isinstance(child, ast.For | ast.AsyncFor) and _holds(child.body, line):
            yield Guard(path, child.lineno, _text(source, child.iter), "for")
        yield from _walk(child, path, line, source)


def _within(function: ast.AST, line: int) -> bool:
    body = getattr(function, "body", [])
    return bool(_holds(body, line)) if isinstance(body, list) else True


def _is_elif(node: ast.If) -> bool:
    return len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)


def _holds(body: Sequence[ast.stmt], line: int) -> bool:
    return bool(body) and body[0].lineno <= line <= (body[-1].end_lineno or body[-1].lineno)


def _text(source: str, node: ast.AST) -> str:
    text = " ".join((ast.get_source_segment(source, node) or "").split())
    return text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]} …"
