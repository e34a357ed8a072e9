"""Names and sentences of gonogo, drawn at random: would an engineer of the field have written them?

    python scripts/wording_sample.py --seed 7              # 40 names and 40 sentences, each with its context
    python scripts/wording_sample.py --seed 7 --count 10 --only sentences

A name is what a file of ``src/gonogo`` defines: a module, class, function, parameter or constant; a name that several
places define counts once. A sentence is what a user reads: the English of a ``Text``, of a file of texts or rules, of
an option's help, of a hazard's page, of a document. Whoever judges gets the output and nothing else of gonogo, and
answers for each line: keep it, or what they would have written.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "gonogo"
RULES = PACKAGE / "diagnose" / "explanations" / "rules.toml"
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_SHORTEST_SENTENCE = 25
_SECTIONS_WITHOUT_SENTENCES = ("Sources", "Example")


def names() -> dict[str, str]:
    """Each name with its first definition: the place, the line, and the docstring's first line."""
    found: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if "stand_ins" in path.parts:  # another package's names
            continue
        place = str(path.relative_to(PACKAGE))
        code = path.read_text(encoding="utf-8")
        tree = ast.parse(code)
        if path.stem != "__init__":
            found.setdefault(path.stem, f"{place} (module): {_first_line(tree)}")
        lines = code.splitlines()
        for name, node, about in _definitions(tree):
            found.setdefault(name, f"{place}:{node.lineno}: {lines[node.lineno - 1].strip()}  {about}".rstrip())
    return {name: place for name, place in found.items() if not name.startswith("__") and len(name.strip("_")) > 1}


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt | ast.expr | ast.arg, str]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node, _first_line(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = node.args
            for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs):
                yield argument.arg, argument, f"(parameter of {node.name}: {_first_line(node)})"
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node, ""
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield target.id, statement, ""


def _first_line(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0]


def sentences() -> dict[str, str]:
    """Each sentence with the place where it stands."""
    found: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                for text in _texts_of_call(node):
                    found |= dict.fromkeys(_split(text), place)
    for path in sorted(PACKAGE.rglob("*.texts.json")):
        for text in json.loads(path.read_text(encoding="utf-8")).values():
            found |= dict.fromkeys(_split(text["en"]), str(path.relative_to(ROOT)))
    heads = {path: path.read_text(encoding="utf-8").split("+++\n")[1] for path in PACKAGE.glob("hazards/*/*.md")}
    for path, declared in {**heads, RULES: RULES.read_text(encoding="utf-8")}.items():
        for text in _english_in(tomllib.loads(declared)):
            found |= dict.fromkeys(_split(text), str(path.relative_to(ROOT)))
    for path in sorted((PACKAGE / "hazards").rglob("*.md")):
        english = path.read_text(encoding="utf-8").partition("\n# English\n")[2].partition("\n# 中文\n")[0]
        for section in re.split(r"^## ", english, flags=re.MULTILINE):
            if not section.startswith(_SECTIONS_WITHOUT_SENTENCES):
                found |= {sentence: str(path.relative_to(ROOT)) for sentence in _split(section.partition("\n")[2])}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if not path.name.endswith(".zh-CN.md"):
            for sentence in _split(path.read_text(encoding="utf-8")):
                found.setdefault(sentence, str(path.relative_to(ROOT)))
    return found


def _english_in(value: Any) -> Iterator[str]:
    """The English of each text of a document in TOML."""
    if isinstance(value, dict):
        if value.keys() == {"en", "zh"}:
            yield value["en"]
        else:
            yield from (text for part in value.values() for text in _english_in(part))
    elif isinstance(value, list):
        yield from (text for part in value for text in _english_in(part))


def _texts_of_call(call: ast.Call) -> list[str]:
    """The English of ``translated(en)`` and ``Text(en, zh)``, and the help of options."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = (
        call.args[:1]
        if called in ("Text", "translated")
        else [word.value for word in call.keywords if word.arg == "help"]
    )
    return [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def _split(text: str) -> list[str]:
    """Sentences and items of a text, without code blocks, tables and headings."""
    prose = "\n".join(
        line
        for line in _FENCE.sub("\n", text).splitlines()
        if not line.startswith(("|", "#", "    ", "- http", "<!--"))
    )
    parts = re.split(r"\n\s*\n|\n[-*] |(?<=[.!?:]) +(?=[A-Z`*])", prose)
    joined = [" ".join(part.split()).removeprefix("- ") for part in parts]
    return [one for one in joined if len(one) >= _SHORTEST_SENTENCE and " " in one]


def main() -> None:
    """Print the draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, required=True, help="the same seed draws the same of the same tree")
    parser.add_argument("--count", type=int, default=40, help="of names and of sentences each")
    parser.add_argument("--only", choices=("names", "sentences"), help="draw only these")
    options = parser.parse_args()
    for kind, listed in (("names", names), ("sentences", sentences)):
        if options.only in (None, kind):
            drawn = listed()
            chosen = random.Random(options.seed).sample(sorted(drawn), options.count)
            print(f"{options.count} of {len(drawn)} {kind}, seed {options.seed}")
            for number, one in enumerate(chosen, 1):
                print(f"{number:3} {one}\n      {drawn[one]}")


if __name__ == "__main__":
    main()
