"""Code that was turned back into text is for people to read: nothing is decided by it.

``ast.unparse`` and the source text of a node have the letters of every name, value and comment in them, so that what
looks for ``rank`` finds ``rerank``. What is to be decided is compared on the syntax tree
(``gonogo/evidence/script/identifiers.py``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "gonogo"
PRINTS = frozenset(
    {*("format", "Text", "translated", "fix"), *("inserting_before", "inserting_after", "replacing", "setting_keyword")}
)
"""What takes a text to show it, or to write it into a file: messages, the titles of fixes, edits."""
RESHAPES = frozenset({"split", "rsplit", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "join"})
"""Methods that make a text of a text: what becomes of theirs is looked at in turn."""
SEARCHES = frozenset(
    {
        *("startswith", "endswith", "find", "rfind", "index", "rindex", "count", "partition", "rpartition", "lower"),
        *("search", "match", "fullmatch", "findall", "finditer", "sub", "casefold", "isidentifier"),
    }
)
HANDED_ON = {("guard/tensors/operands.py", "_evaluate"): "the name of an operand, which reports show"}
"""Functions that give such a text back, and what for."""
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module


class Module:
    """A module with the parents of its nodes."""

    def __init__(self, text: str, path: str = "") -> None:
        self.tree = ast.parse(text)
        self.path = path
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def scope(self, node: ast.AST) -> ast.AST:
        while not isinstance(node, Scope):
            node = self.parents[node]
        return node

    def misuses(self) -> Iterator[str]:
        """Where something is done with code as text that is more than showing it."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module == "ast":
                # Under its own name it is found wherever it is called.
                yield from (f"line {node.lineno}: import ast, not {alias.name} from it" for alias in node.names)
            elif is_unparsed(node):
                yield from self.uses(node, strict=True, seen=set())
            elif is_source_text(node):
                yield from self.uses(node, strict=False, seen=set())

    def uses(self, node: ast.AST, strict: bool, seen: set[tuple[ast.AST, str]]) -> Iterator[str]:
        """Climb from a text to what is done with it. ``strict`` forbids all but showing it, else only searching it."""
        parent = self.parents[node]
        if self.passes_on(parent, node, strict):
            yield from self.uses(parent, strict, seen)
        elif isinstance(parent, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            for target in parent.targets if isinstance(parent, ast.Assign) else [parent.target]:
                if isinstance(target, ast.Name):
                    yield from self.loads(target, strict, seen)
                elif strict:
                    yield self.complaint(parent)
            if isinstance(parent, ast.NamedExpr):
                yield from self.uses(parent, strict, seen)
        elif isinstance(parent, ast.Attribute):
            call = self.parents[parent]
            if parent.attr in RESHAPES and isinstance(call, ast.Call):
                yield from self.uses(call, strict, seen)
            elif strict or parent.attr in SEARCHES:
                yield self.complaint(parent)
        elif isinstance(parent, ast.Call | ast.keyword):
            yield from self.given(parent, strict, seen)
        elif decides(parent, node) or (strict and not self.is_handed_on(node)):
            yield self.complaint(parent)

    def passes_on(self, parent: ast.AST, node: ast.AST, strict: bool) -> bool:
        """Whether an expression is, or holds, the text that is a part of it."""
        if isinstance(parent, ast.BinOp):
            return isinstance(parent.op, ast.Add)
        if isinstance(parent, (ast.GeneratorExp, ast.ListComp)):
            return parent.elt is node or not strict
        if isinstance(parent, ast.Subscript):
            return parent.value is node
        if isinstance(parent, ast.IfExp):
            return parent.test is not node
        return isinstance(parent, (ast.FormattedValue, ast.JoinedStr, ast.Starred)) or (
            isinstance(parent, ast.comprehension) and not strict
        )

    def given(self, parent: ast.Call | ast.keyword, strict: bool, seen: set[tuple[ast.AST, str]]) -> Iterator[str]:
        """What a call is made of that gets the text."""
        call = self.parents[parent] if isinstance(parent, ast.keyword) else parent
        assert isinstance(call, (ast.Call, ast.ClassDef))
        func = call.func if isinstance(call, ast.Call) else None
        name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        if name in RESHAPES:
            yield from self.uses(call, strict, seen)
        elif name in SEARCHES or (strict and name not in PRINTS):
            yield self.complaint(call)

    def loads(self, target: ast.Name, strict: bool, seen: set[tuple[ast.AST, str]]) -> Iterator[str]:
        scope = self.scope(target)
        if (scope, target.id) in seen:
            return
        seen.add((scope, target.id))
        for node in ast.walk(scope):
            if isinstance(node, ast.Name) and node.id == target.id and isinstance(node.ctx, ast.Load):
                yield from self.uses(node, strict, seen)

    def is_handed_on(self, node: ast.AST) -> bool:
        function = self.scope(node)
        return (self.path, getattr(function, "name", "")) in HANDED_ON

    def complaint(self, node: ast.AST) -> str:
        return f"line {getattr(node, 'lineno', '?')}: {ast.unparse(node)[:80]}"


def is_unparsed(node: ast.AST) -> bool:
    """``ast.unparse(…)``."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "unparse":
        return False
    return isinstance(node.func.value, ast.Name) and node.func.value.id == "ast"


def is_source_text(node: ast.AST) -> bool:
    """``script.place(node).text``, ``ast.get_source_segment(…)``."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "get_source_segment"
    if not isinstance(node, ast.Attribute) or node.attr != "text" or not isinstance(node.value, ast.Call):
        return False
    place = node.value.func
    return isinstance(place, ast.Attribute) and place.attr == "place" and len(node.value.args) == 1


def decides(parent: ast.AST, node: ast.AST) -> bool:
    """Whether a comparison or the key of a table is made of it."""
    if isinstance(parent, ast.Dict):
        return node in parent.keys
    return isinstance(parent, ast.Compare | ast.Set | ast.DictComp | ast.SetComp)


MODULES = sorted(PACKAGE.rglob("*.py"))


def test_nothing_is_decided_by_code_as_text() -> None:
    found = []
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        if "unparse" in text or ".place(" in text or "get_source_segment" in text or "from ast" in text:
            name = path.relative_to(PACKAGE).as_posix()
            found += [f"{name} {misuse}" for misuse in Module(text, name).misuses()]
    assert found == []


def test_what_is_handed_on_is_there() -> None:
    for path, function in HANDED_ON:
        tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
        assert any(map(is_unparsed, (each for one in functions for each in ast.walk(one)))), (path, function)


@pytest.mark.parametrize(
    "code",
    [
        '"rank" in ast.unparse(test)',
        'ast.unparse(test) == "rank"',
        'ast.unparse(func).endswith(".backward")',
        'ast.unparse(func).rpartition(".")[2] in names',
        "any(word in ast.unparse(test) for word in words)",
        "re.search('rank', ast.unparse(test))",
        "_RANK.search(ast.unparse(test))",
        "{ast.unparse(each) for each in nodes}",
        "{ast.unparse(node): node}",
        "known[ast.unparse(node)]",
        "seen.add(ast.unparse(node))",
        "mentions_rank(ast.unparse(test))",
        "str(ast.unparse(test))",
        "text = ast.unparse(test)\nif 'rank' in text: pass",
        "text = ast.unparse(test)[:60]\nshort = text.strip()\nprint(Text(short, short))\nfound = short.startswith('a')",
        "tests = [ast.unparse(test) for test in tests]\nfound = any('rank' in test for test in tests)",
        "text = f'{ast.unparse(test)}'\nfound = text == 'rank'",
        "if ast.unparse(test): pass",
        "if (text := ast.unparse(test)) != 'a': Text(text, text)",
        "def of(test):\n    return ast.unparse(test)",
        "def of(test):\n    yield test, ast.unparse(test)",
        "len(ast.unparse(test))",
        "self.text = ast.unparse(test)",
        "from ast import unparse",
        '"rank" in script.place(data).text',
        "script.place(node).text.startswith('cuda')",
        "text = script.place(method).text\nfound = '.to(' in text or 'labels' not in text",
        "sharded = {script.place(one).text for one in nodes}",
        "found = ' '.join(script.place(one).text.split()) == 'a'",
        "_RANK.search(script.place(node).text)",
        "any(word in ast.get_source_segment(text, node) for word in words)",
    ],
)
def test_a_decision_is_seen(code: str) -> None:
    assert list(Module(code).misuses())


@pytest.mark.parametrize(
    "code",
    [
        "Text('{test}', '{test}').format(test=ast.unparse(test)[:60])",
        "_CONDITION.format(test=ast.unparse(test) if short else '', line=1)",
        "script.inserting_before(node, f'{node.id}.set_epoch({ast.unparse(target)})')",
        "call = f\"({', '.join(ast.unparse(one) for one in nodes)})\"\nText('{call}', '{call}').format(call=call)",
        "text = ast.unparse(test)\nText(text, text)",
        "text = ' '.join(script.place(node).text.split())\nreturned = text if len(text) < 9 else text[:9]",
        "def of(script, node):\n    return script.place(node).text",
        "place.text.startswith('--')",
        "compare(test, other)",
    ],
)
def test_showing_is_no_decision(code: str) -> None:
    assert list(Module(code).misuses()) == []
