"""Tables that are made from the results in ``benchmarks/``: they stand on the site, and not in ``docs/``.

    python scripts/docs_site/tables.py                           # the names
    python scripts/docs_site/tables.py projects [--lang zh]      # one of them, in Markdown

In a document ``<!-- table: NAME -->``, on a line of its own, is where the site has the table.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
_MARK = re.compile(r"^<!-- table: ([\w-]+) -->$", re.MULTILINE)


def _benchmark(module: str) -> Any:
    """A module of ``benchmarks/``, whose folder is no package."""
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))
    return importlib.import_module(module)


def _of(module: str) -> Callable[[str], str]:
    """What a benchmark's ``table(language)`` gives."""
    return lambda language: str(_benchmark(module).table(language))


def _of_architectures(which: str) -> Callable[[str], str]:
    def table(language: str) -> str:
        module = _benchmark("architecture_table")
        rows = list(module.Rows.read(BENCHMARKS / "architectures.jsonl").by_case.values())
        return str(module.table(rows, which, language))

    return table


TABLES: dict[str, Callable[[str], str]] = {
    "projects": _of("projects"),
    "architectures-published": _of_architectures("published"),
    "architectures-default": _of_architectures("default"),
    "post-training": _of("post_training"),
    "post-training-memory": _of("post_training_memory"),
    "post-training-recipes": _of("post_training_recipes"),
    "post-training-published": _of("post_training_published"),
    **{
        f"versions-{package}": lambda language, package=package: str(_benchmark("versions").table(package, language))
        for package in ("deepspeed", "transformers", "torch")
    },
}


def with_tables(text: str, language: str) -> str:
    """A document with its tables where their marks are. An unknown name is an error: KeyError."""
    return _MARK.sub(lambda mark: TABLES[mark[1]](language), text)


def main() -> None:
    """Print a table, or the names of all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", nargs="?", choices=sorted(TABLES))
    parser.add_argument("--lang", choices=("en", "zh"), default="en")
    options = parser.parse_args()
    print(TABLES[options.name](options.lang) if options.name else "\n".join(TABLES))


if __name__ == "__main__":
    main()
