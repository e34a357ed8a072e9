"""Preference and reinforcement learning, by the frameworks' own commands: verdict, seconds, memory of each rehearsal.

    python benchmarks/post_training.py [--only WORD …] [--broken] [--format json] [--keep]

Each cell is a framework, an algorithm and a strategy, with a model of two layers on two virtual H100 (`broken` ones
have one thing wrong, and a hazard or a word of the message that has to be named). The real packages are taken from the
folders that `tests/frameworks` pins; vLLM is stood in for. Prints a line a cell; exits 1 where an answer is not as
expected. `--keep` keeps the answers in `post_training.jsonl`, from which the site makes the table of
`docs/post-training.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from post_training_cells import BROKEN, CELLS, Cell, framework, make_files

_HERE = Path(__file__).resolve().parent
RESULTS = _HERE / "post_training.jsonl"
_HEADS = {"en": "| what | expected | verdict | seconds | MiB |", "zh": "| 内容 | 预期 | 结论 | 秒 | MiB |"}


def measure(cell: Cell, folder: Path) -> dict[str, object]:
    """Rehearse it: the verdict, and whether it is what was expected."""
    found = run_command(cell.command, folder, cell.framework, cell.gpus)
    wanted = "NO-GO" if cell.names else "GO"
    shown = json.dumps([found["named"], found.pop("titles"), found["message"]], ensure_ascii=False)
    right = found["verdict"] == wanted and cell.names in shown
    return {"cell": cell.key, "names": cell.names, "right": right, **found}


def run_command(command: str, folder: Path, package: str, gpus: str) -> dict[str, object]:
    """Rehearse a command: verdict, hazards, message, seconds of CPU, and the largest process's memory in MiB."""
    folders = [framework(package), *([framework("trl_before_1")] if package == "swift" else [])]
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path, "NPROC_PER_NODE": "2", "NO_COLOR": "1"}
    words = ["--gpus", gpus, "--steps", "2", "--timeout", "900", "--format", "json"]
    words += ["--keep", tempfile.mkdtemp(dir=folder)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        run = subprocess.Popen(
            [sys.executable, "-m", "gonogo", "rehearse", *words, "--", *shlex.split(command)],
            cwd=folder, stdout=out, stderr=errors, env=environment,
        )  # fmt: skip
        _, _, used = os.wait4(run.pid, 0)
        run.returncode = 0
        out.seek(0), errors.seek(0)
        text, said = out.read(), errors.read()
    report = json.loads(text) if text.startswith("{") else {"verdict": "none", "findings": [], "rehearsal": None}
    ranks = (report["rehearsal"] or {}).get("ranks") or [{}]
    failure = (ranks[0].get("failure") or {}).get("message", "") or " ".join(
        map(str, ranks[0].get("unsupported") or ())
    )
    return {
        "verdict": report["verdict"],
        "seconds": round(used.ru_utime + used.ru_stime, 1),
        "mib": used.ru_maxrss // 1024,
        "named": [finding["hazard"] for finding in report["findings"] if finding["severity"] == "error"],
        "titles": [str(finding["title"]) for finding in report["findings"]],
        "message": (failure or (said[-300:] if report["verdict"] == "none" else ""))[:300],
    }


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    """What is kept, by cell."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row["cell"]: row for row in map(json.loads, lines)}


def keep(found: dict[str, object], path: Path) -> None:
    """Keep an answer, in the place of the cell's earlier one."""
    kept = {**rows_of(path), str(found["cell"]): {k: v for k, v in found.items() if k not in ("message", "titles")}}
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in kept.values()), encoding="utf-8")


def table(language: str) -> str:
    """What is kept of the cells that there are, in Markdown."""
    kept = rows_of(RESULTS)
    lines = [_HEADS[language], "| --- | --- | --- | ---: | ---: |"]
    for row in (kept[cell.key] for cell in (*CELLS, *BROKEN) if cell.key in kept):
        expected = f"NO-GO: {row['names']}" if row["names"] else "GO"
        lines.append(f"| {row['cell']} | {expected} | {row['verdict']} | {row['seconds']:.0f} | {row['mib']} |")
    return "\n".join(lines)


def main() -> int:
    """Run the cells that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="cells whose name has all of these words")
    parser.add_argument("--broken", action="store_true", help="only those with something wrong")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--keep", action="store_true", help=f"keep the answers in {RESULTS.name}")
    asked = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder)
        for cell in (*(() if asked.broken else CELLS), *BROKEN):
            if not all(word in cell.key for word in asked.only):
                continue
            found = measure(cell, folder)
            wrong += not found["right"]
            if asked.keep:
                keep(found, RESULTS)
            if asked.format == "json":
                print(json.dumps(found), flush=True)
                continue
            mark = "" if found["right"] else "  UNEXPECTED"
            print(
                f"{found['cell']:44} {found['verdict']:12} {found['seconds']:6} s {found['mib']:6} MiB{mark}",
                flush=True,
            )
            if mark:
                print(f"    {found['named']} {found['message']}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
