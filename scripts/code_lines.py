"""Lines of code of the package, as a line counter sees them: no blank lines, comments or docstrings.

    python scripts/code_lines.py              # each room of src/gonogo, and the sum
    python scripts/code_lines.py --by kind    # pages of data, handlers of hazards, stand-ins, and the rest
    python scripts/code_lines.py --by module  # the 60 largest modules, and what of each is literals

A line counts if a token of Python stands on it that is no docstring. A line inside a string over several lines counts.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "gonogo"
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_NO_CODE |= {tokenize.ENCODING}


def code_lines(code: str) -> set[int]:
    """The numbers of the lines that have code on them."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - _docstring_lines(ast.parse(code))


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Also strings that stand alone below an attribute: they document it."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def literal_lines(code: str) -> set[int]:
    """Lines of literals over more than three lines that are assigned to a name of the module."""
    lines: set[int] = set()
    for statement in ast.parse(code).body:
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        if value is not None and (value.end_lineno or 0) - value.lineno > 3 and not isinstance(value, ast.Lambda):
            lines.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return lines


def kind_of(path: Path) -> str:
    """What a module is for, as far as its place tells."""
    room, *rest = path.relative_to(PACKAGE).parts
    if "stand_ins" in rest:
        return "stand-ins"
    if room == "hazards" and rest[0] not in ("facts",) and len(rest) > 1:
        return "hazards decided by code"
    return f"{room if rest else 'gonogo'}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", choices=("room", "kind", "folder", "module"), default="room")
    how = parser.parse_args().by
    sums: Counter[str] = Counter()
    literals: Counter[str] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        parts = path.relative_to(PACKAGE).parts
        name = {
            "room": parts[0] if len(parts) > 1 else "gonogo",
            "kind": kind_of(path),
            "folder": "/".join(parts[:-1][:2]),
            "module": "/".join(parts),
        }[how]
        counted = code_lines(code)
        sums[name] += len(counted)
        literals[name] += len(counted & literal_lines(code))
    for name, count in sums.most_common(60):
        print(f"{count:7,} {literals[name]:7,}  {name}")
    print(f"{sums.total():7,} {literals.total():7,}  all; the second column: in literals of more than three lines")


if __name__ == "__main__":
    main()
