"""A stranger's project from `git clone` to a verdict: ``gonogo rehearse``, then at most what its report says next.

    python benchmarks/two_commands.py [--mirrors DIR] [--work DIR] [--out FILE] [NAME …]
    python benchmarks/two_commands.py --table    # the results that are kept, as docs/five-minutes.md shows them

The launches with ``two_commands = true`` in ``tests/projects/launches/``. For each, in a fresh checkout: ``gonogo
rehearse --yes --gpus … -- COMMAND``, as a user types it; where that is CANNOT-TELL, the report's next command is typed
too, as it is. What both said goes to FILE, a JSON line each. Judged as by projects.py.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from projects import checked_out, judged, launches

_TIMEOUT = 1800
KEPT = Path(__file__).with_name("two_commands.jsonl")
"""The results that are kept: of each command the verdict, ``first`` before anything was mended, and ``now``."""
_RUNS_GONOGO = re.compile(r"gonogo (rehearse|check|cure) ")


def typed(command: str, folder: Path) -> dict[str, Any]:
    """What a command printed: its report where it has one, and how long it took."""
    begun = time.monotonic()
    bin_ = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "LANG": "C.UTF-8"}
    try:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT,
            stdin=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        out, error = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        out, error = "", f"over {late.timeout} s"
    seconds = round(time.monotonic() - begun)
    try:
        report = json.loads(out)
    except ValueError:
        report = None
    answer = (report or {}).get("answer") or {}
    said = [answer[key] for key in ("says", "reason", "next", "next_does") if answer.get(key)]
    verdict = (report or {}).get("verdict", "no report")
    return {
        "command": command, "seconds": seconds, "verdict": verdict, "said": said or error.strip().splitlines()[-3:],
        "report": report, "stderr": error[-4000:],
    }  # fmt: skip


def with_json(command: str) -> str:
    """The same command, its report in JSON."""
    return _RUNS_GONOGO.sub(r"gonogo \1 --format json --yes ", command, count=1).replace("--yes --yes", "--yes")


def second(first: dict[str, Any]) -> str | None:
    """The command to type next, None where the report names none that can be typed here."""
    answer = (first["report"] or {}).get("answer") or {}
    command = answer.get("next") or ""
    if first["verdict"] in {"GO", "NO-GO"} or not command or "…" in command or command.startswith("gonogo run"):
        return None
    return str(command)


def taken(launch: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """One command, or two."""
    start = folder / launch.get("folder", ".")
    first = typed(with_json(f"gonogo rehearse --gpus {launch['gpus']} -- {launch['command']}"), start)
    following = second(first)
    return [first] if following is None else [first, typed(with_json(following), start)]


def table() -> str:
    """Each launch with its verdict by the first command and by the second, before mending and now, in Markdown."""
    kept = {one["launch"]: one for one in map(json.loads, KEPT.read_text(encoding="utf-8").splitlines())}
    rows = ["| project | true | at first | seconds | now | judged now |", "| --- | --- | --- | ---: | --- | --- |"]
    for launch in launches():
        one = kept.get(f"{launch['project']}: {launch['name']}")
        if one is not None:
            first, now = ("; ".join(done["verdict"] for done in one[when]) for when in ("first", "now"))
            judged_now = one["judged"]
            if not one["measured_again"]:
                now = judged_now = "-"
            seconds = sum(done["seconds"] for done in one["first"])
            rows.append(f"| {launch['project']} | {launch['verdict']} | {first} | {seconds} | {now} | {judged_now} |")
    return "\n".join(rows)


def main() -> int:
    """Type them and say how many reached a verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mirrors", type=Path, help="a folder of bare clones, OWNER+NAME")
    parser.add_argument("--work", type=Path, help="where the projects are checked out; else a temporary folder")
    parser.add_argument("--out", type=Path, help="append each launch's commands there, a JSON line each")
    parser.add_argument("--table", action="store_true", help="print the results that are kept")
    parser.add_argument("names", nargs="*", help="only launches or projects with these in their names")
    options = parser.parse_args()
    if options.table:
        print(table())
        return 0
    reached = count = 0
    for launch in launches():
        title = f"{launch['project']}: {launch['name']}"
        if not launch.get("two_commands") or (
            options.names and not any(name.lower() in title.lower() for name in options.names)
        ):
            continue
        count += 1
        work = Path(tempfile.mkdtemp(prefix="two-", dir=options.work))
        folder = work / launch["project"].partition("/")[2]
        why_not = checked_out(launch, options.mirrors, folder)
        if why_not is not None:
            print(f"skipped: {title}: {why_not}", flush=True)
            continue
        done = taken(launch, folder)
        last = done[-1]
        reached += last["verdict"] in {"GO", "NO-GO"}
        for number, one in enumerate(done, 1):
            judgement = judged(launch, one["report"])
            print(f"{judgement}: {title}: {number}. {one['verdict']}, {one['seconds']} s", flush=True)
            print("    " + "\n    ".join(one["said"]), flush=True)
        if options.out is not None:
            line = {"launch": title, "judged": judged(launch, last["report"]), "commands": done}
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        shutil.rmtree(work, ignore_errors=True)
    print(f"a verdict with at most two commands: {reached} of {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
