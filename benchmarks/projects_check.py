"""Whether what check calls a certain error is true in public projects: held against a table of judgements.

    git clone https://github.com/OWNER/NAME CHECKOUTS/NAME && git -C CHECKOUTS/NAME checkout COMMIT
    python benchmarks/projects_check.py CHECKOUTS

The projects, with their commits, stand in ``tests/projects/projects.tsv``; each certain error that check has ever
given there, with whether it is true and why, in ``tests/projects/judged.tsv``. A checkout that is missing is named and
counted.
Exit status 0: nothing false, nothing that was not judged, and no crash.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TABLES = Path(__file__).resolve().parents[1] / "tests" / "projects"
_TIMEOUT = 600
"""Seconds that one folder may take."""


def table(name: str) -> list[dict[str, str]]:
    """The rows of a table, by its heading."""
    with open(TABLES / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def checked(folder: Path) -> tuple[dict[str, Any] | None, float]:
    """Check's report on a folder, None where it ended without one, and the seconds that it took."""
    start = time.monotonic()
    command = [sys.executable, "-m", "gonogo", "check", "--format", "json", "."]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT, env=dict(os.environ)
        )
        report = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        report = None
    return report, time.monotonic() - start


def certain_errors(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Each certain error: where it stands, and its hazard."""
    return [
        (f"{span['path']}:{span['line']}", finding["hazard"])
        for finding in report["findings"]
        if finding["severity"] == "error" and finding["certainty"] == "certain"
        for span in (finding["spans"] or [{"path": "", "line": 0}])[:1]
    ]


def main() -> int:
    """Check each project and print the score."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("checkouts", type=Path, help="the folder that holds the projects' checkouts, by their names")
    parser.add_argument("names", nargs="*", help="only these projects")
    options = parser.parse_args()
    judged = {(row["project"], row["place"], row["hazard"]): row for row in table("judged.tsv")}
    score = dict.fromkeys(("true", "false", "unjudged", "gone", "crashed", "missing"), 0)
    for project in table("projects.tsv"):
        name = project["repository"].partition("/")[2]
        if options.names and name not in options.names:
            continue
        if not (options.checkouts / name).is_dir():
            score["missing"] += 1
            print(f"{name}: missing; git clone https://github.com/{project['repository']}, commit {project['commit']}")
            continue
        report, seconds = checked(options.checkouts / name)
        if report is None:
            score["crashed"] += 1
            print(f"{name}: no report after {seconds:.0f} s")
            continue
        found = set(certain_errors(report))
        faults = [one["what"] for one in report["skipped"] if "fault of gonogo" in one["why"]]
        score["crashed"] += len(faults)
        told = f"; faults: {', '.join(faults)}" if faults else ""
        print(f"{name}: {report['verdict']}, {len(found)} certain errors, {seconds:.1f} s{told}")
        for place, hazard in sorted(found):
            row = judged.get((name, place, hazard))
            answer = row["judged"] if row is not None else "unjudged"
            score[answer] += 1
            if answer != "true":
                print(f"  {answer}: {hazard} at {place}{': ' + row['why'] if row is not None else ''}")
        for (project_name, place, hazard), row in judged.items():
            if project_name == name and row["judged"] == "true" and (place, hazard) not in found:
                score["gone"] += 1
                print(f"  gone: {hazard} at {place}, which is true: {row['why']}")
    given = score["true"] + score["false"] + score["unjudged"]
    share = f"{100 * score['true'] / given:.1f} %" if given else "none given"
    counts = ", ".join(f"{name}: {count}" for name, count in score.items())
    print(f"certain errors: {given}, of which true: {share}; {counts}")
    return 1 if score["false"] or score["unjudged"] or score["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
