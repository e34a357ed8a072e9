"""The walk of syntax trees visits what ``ast.walk`` does, without markers and the names that an import lists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gonogo.evidence.script.syntax_index import walk

MARKERS = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop, ast.alias)
SOURCES = sorted(Path(ast.__file__).parent.glob("*.py"))[:40]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_each_node_is_visited_once(path: Path) -> None:
    tree = ast.parse(path.read_bytes())
    visited = list(walk(tree))
    expected = {id(node) for node in ast.walk(tree) if not isinstance(node, MARKERS)}
    assert {id(node) for node in visited} == expected
    assert len(visited) == len(expected)
