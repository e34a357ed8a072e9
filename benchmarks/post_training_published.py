"""The frameworks' own recipes of post-training as they are published, at full size: is the verdict right?

    python benchmarks/post_training_published.py [--mirrors DIR] [--keep] [NAME …]

The recipes stand in ``tests/projects/recipes/``: the file in its framework's repository, the accelerators, the verdict
expected and why. Nothing is edited: the repository is cloned, ``gonogo prepare`` makes models without weights, rows of
data and the environment that the framework asks for, then ``gonogo rehearse`` runs the command. Where a file is started
by a command that its header tells (TRL's scripts), it is taken from there. NAME is part of a recipe's name. How a
verdict is judged, and what DIR is: ``projects.py``.

Exit status 0: every recipe that could be had has the verdict expected.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from post_training import rows_of
from projects import checked_out, judged, prepared, rehearsed, told, tomllib

RECIPES = Path(__file__).resolve().parents[1] / "tests" / "projects" / "recipes"
RESULTS = Path(__file__).with_name("post_training_published.jsonl")
_HEADS = {
    "en": "| recipe | expected | verdict | judged | at first | seconds |",
    "zh": "| 配方 | 预期 | 结论 | 判定 | 首次 | 秒 |",
}
_RULE = "| --- | --- | --- | --- | --- | ---: |"


def tables() -> list[dict[str, Any]]:
    """The frameworks, each with its recipes."""
    return [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(RECIPES.glob("*.toml"))]


def title(table: dict[str, Any], recipe: dict[str, Any]) -> str:
    """A recipe's name in tables and results: its project and file, and which of a header's commands it is."""
    which = f" #{recipe['which']}" if recipe.get("which", 1) > 1 else ""
    return f"{table['project']} {recipe['file']}{which}"


def command_of(table: dict[str, Any], recipe: dict[str, Any], folder: Path) -> str:
    """What starts it: as its table says, or the command of that number in the file's header."""
    if "start" in table:
        return str(table["start"]).format(file=recipe["file"])
    text = (folder / recipe["file"]).read_text(encoding="utf-8")
    starts = [found.start() for found in re.finditer(r"(?m)^(?:accelerate launch|python) ", text)]
    words = []
    for line in text[starts[recipe.get("which", 1) - 1] :].splitlines():
        words.append(line.strip().removesuffix("\\").strip())
        if not line.rstrip().endswith("\\"):
            break
    return " ".join(words)


def run(table: dict[str, Any], recipe: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Prepare and rehearse one, as if it were the first in its clone."""
    shutil.rmtree(folder / "gonogo-prepared", ignore_errors=True)
    launch = {**recipe, "command": command_of(table, recipe, folder)}
    start = time.monotonic()
    prepared(launch, folder)
    report, stderr = rehearsed(launch, folder)
    said = report or {"verdict": "no report", "findings": []}
    return {
        "cell": title(table, recipe),
        "verdict": said["verdict"],
        "judged": judged(launch, report),
        "seconds": round(time.monotonic() - start),
        "hazards": [one["hazard"] for one in said["findings"] if one["severity"] == "error"],
        "told": told(report, stderr),
    }


def keep(found: dict[str, Any]) -> None:
    """Keep a result in the place of the recipe's earlier one, and how it was judged the first time."""
    kept = rows_of(RESULTS)
    first = kept.get(found["cell"], {}).get("first", found["judged"])
    kept[found["cell"]] = {key: value for key, value in found.items() if key != "told"} | {"first": first}
    RESULTS.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in kept.values()), encoding="utf-8")


def table(language: str) -> str:
    """What is kept, in Markdown, under a line of the scores."""
    kept = rows_of(RESULTS)
    rows, left, scores = [], 0, {when: dict.fromkeys(("right", "unsure", "wrong"), 0) for when in ("first", "judged")}
    for framework in tables():
        for recipe in framework["recipe"]:
            name = title(framework, recipe)
            row = kept.get(name)
            if row is None:
                left += 1
                continue
            for when, score in scores.items():
                score[row[when]] += 1
            cells = (name, recipe["verdict"], row["verdict"], row["judged"], row["first"], row["seconds"])
            rows.append(f"| {' | '.join(map(str, cells))} |")
    says = {"first": {"en": "at each one's first run", "zh": "各自首次运行"}, "judged": {"en": "now", "zh": "现在"}}
    lines = ["| | right | unsure | wrong |", "| --- | ---: | ---: | ---: |"]
    for when, score in scores.items():
        lines.append(f"| {says[when][language]} | {' | '.join(map(str, score.values()))} |")
    said = {"en": f"Argued, and not run so far: {left} more.", "zh": f"已论证而尚未运行的还有 {left} 个。"}[language]
    return "\n".join([*lines, "", said, "", _HEADS[language], _RULE, *rows])


def main() -> int:
    """Rehearse the recipes that are asked for and print the score."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mirrors", type=Path, help="a folder of bare clones, OWNER+NAME")
    parser.add_argument("--keep", action="store_true", help=f"keep the results in {RESULTS.name}")
    parser.add_argument("names", nargs="*", help="only recipes with one of these in their names")
    options = parser.parse_args()
    score = dict.fromkeys(("right", "unsure", "wrong", "skipped"), 0)
    for table in tables():
        chosen = [
            one
            for one in table["recipe"]
            if not options.names or any(name in title(table, one) for name in options.names)
        ]
        if not chosen:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / table["project"].partition("/")[2]
            why_not = checked_out(table, options.mirrors, folder)
            if why_not is not None:
                score["skipped"] += len(chosen)
                print(f"skipped: {table['project']}: {why_not}", flush=True)
                continue
            for recipe in chosen:
                found = run(table, recipe, folder)
                score[found["judged"]] += 1
                if options.keep:
                    keep(found)
                line = f"{found['judged']}: {found['cell']}: {found['verdict']}, expected {recipe['verdict']}"
                print(f"{line}, {found['seconds']} s", flush=True)
                if found["judged"] != "right":
                    print(f"    {found['told']}", flush=True)
    print(", ".join(f"{name}: {count}" for name, count in score.items()))
    return 1 if score["wrong"] or score["unsure"] or score["skipped"] else 0


if __name__ == "__main__":
    sys.exit(main())
