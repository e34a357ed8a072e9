"""Commands of public projects that no other table has, as a newcomer types them: is what ``gonogo check`` says true?

    python benchmarks/launch_checks.py                        # clones the projects, checks all, prints the table
    python benchmarks/launch_checks.py --mirrors DIR NAME …   # bare clones in DIR (OWNER+NAME); only projects with NAME
    python benchmarks/launch_checks.py --first                # the table of the first verdicts, nothing is run

The commands, each with what is true of it, stand in ``benchmarks/launch_checks.jsonl``. They were drawn as a project's
README and launch scripts list them; each first verdict was judged by hand, from the project's code, before anything
was mended for it. What a run finds is written there too, beside the first verdict.
"""

from __future__ import annotations

import argparse
import collections
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import projects

TABLE = Path(__file__).with_suffix(".jsonl")
_TIMEOUT = 120
"""Seconds that one command's check may take."""


def rows() -> list[dict[str, Any]]:
    """The table, a command each."""
    return [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]


def checked(row: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The row, with the verdict and the findings of a check now."""
    words = shlex.split(row["command"])
    if "=" in words[0]:
        words.insert(0, "env")
    command = [sys.executable, "-m", "gonogo", "check", "--format", "json", "--", *words]
    done = subprocess.run(command, cwd=folder / row["folder"], capture_output=True, text=True, timeout=_TIMEOUT)
    report = json.loads(done.stdout)
    findings = sorted({(one["hazard"], one["severity"], one["certainty"]) for one in report["findings"]})
    return {**row, "verdict": report["verdict"], "findings": findings}


def main() -> int:
    """Check the commands and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirrors", type=Path)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    table = rows()
    wanted = [row for row in table if not asked.names or any(name in row["project"] for name in asked.names)]
    if not asked.first:
        with tempfile.TemporaryDirectory() as folder:
            places: dict[str, Path] = {}
            for row in wanted:
                place = places.get(row["project"])
                if place is None:
                    place = places[row["project"]] = Path(folder) / row["project"].replace("/", "+")
                    missing = projects.checked_out(row, asked.mirrors, place)
                    if missing is not None:
                        print(f"{row['project']}: {missing}", file=sys.stderr)
                if (place / row["folder"]).is_dir():
                    row.update(checked(row, place))
        TABLE.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table), encoding="utf-8")
    for row in wanted:
        verdict = row["first_verdict"] if asked.first else row.get("verdict", "-")
        print(f"{verdict:12} {row['first']:18} {row['project']}: {row['command'][:60]}")
    print(dict(collections.Counter(row["first_verdict"] for row in wanted)), "at first, of which")
    print(dict(collections.Counter(row["first"] for row in wanted)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
