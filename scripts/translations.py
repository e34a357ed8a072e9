"""Keeps src/gonogo/finding/zh.json level with the source: ``make translations``.

Each text of a ``translated("…")`` gets an entry, in the source's order; what is no longer said goes. New entries are
empty: fill them in, and run it again. Exit status 1 while some are empty.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "gonogo"
ZH = PACKAGE / "finding" / "zh.json"


def sources() -> Iterator[tuple[Path, ast.Module]]:
    """Each file of the package, parsed."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def calls_of(tree: ast.Module) -> list[ast.Call]:
    """All calls in a file, from top to bottom."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def texts_in(path: Path, tree: ast.Module) -> Iterator[str]:
    """The key of each text of a file. Raises SystemExit for one that is no literal."""
    for call in calls_of(tree):
        if isinstance(call.func, ast.Name) and call.func.id == "translated":
            words = [word.value for word in call.args if isinstance(word, ast.Constant)]
            if not words or len(words) != len(call.args) or call.keywords:
                sys.exit(f"{path}, line {call.lineno}: translated() takes literals; values come in by .format()")
            yield "|".join(reversed(words))


def leveled(known: dict[str, str]) -> dict[str, str]:
    """All texts of the source in its order, with the Chinese of those that are known."""
    return {text: known.get(text, "") for path, tree in sources() for text in texts_in(path, tree)}


def written(entries: dict[str, str]) -> str:
    """The file's text."""
    return json.dumps(entries, ensure_ascii=False, indent=0) + "\n"


def main() -> int:
    """Rewrite it, and print what is to be filled in."""
    entries = leveled(json.loads(ZH.read_text(encoding="utf-8")))
    ZH.write_text(written(entries), encoding="utf-8")
    empty = [text for text, chinese in entries.items() if not chinese]
    for text in empty:
        print(f"no Chinese yet: {text}")
    print(f"{len(entries):,} texts, {len(empty)} without Chinese, in {ZH.relative_to(PACKAGE.parents[1])}")
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
