"""Memory that others have measured on real GPUs and published, held against a rehearsal of the same recipe.

    python benchmarks/published/run.py [--mirrors DIR] [--again | --since COMMIT] [--timeout SECONDS] [NAME …]
    python benchmarks/published/run.py --write    # docs/accuracy.md and its picture, of the results that are kept

A row in ``rows/`` is a recipe: the project and commit, the command, the versions of its day, the GPUs; and its
figure: GiB ("out of memory" where there is none), what was read (``allocated`` or ``reserved``), where it is
published, and how complete the recipe is (A: program, settings and data are all there, and the figure is exact; A-:
all but the data or the way of reading; B+: the lengths of the data are unknown; B: gaps). Nothing is tuned for a row:
the command is run as it stands, and what had to be replaced (data that can't be had) is said in the row's file. Rows
that can't be rehearsed stay, with the reason.

A program that measures many cases prints a line ``figure of CASE: N GiB`` for each, as it asks torch for its peak; its
rows have ``means = "printed"`` and their CASE as ``figure``. Rows with the same command have one rehearsal.

Two rows whose recipes differ in one setting are a pair: one names the other as ``against``, and the setting as
``differs``.

What a recipe's files name and is not here (data, tokenizers) is left to ``gonogo prepare`` where ``prepare = true``.

DIR holds bare clones, as for ``projects.py``. NAME is part of a row's name or its file's. Rows that have a result of
the same recipe are left out unless ``--again`` is given, or ``--since COMMIT`` and the result is of a gonogo without
that commit. Each result is kept in ``results.jsonl`` at once, with its day, gonogo's commit (``+``: and changes to it),
a hash of the recipe (the row's settings and the program here that it runs: ``recipe_hash.py``), and the first answer
where it is not the first. A result whose recipe has changed since is stale: it is named at the start and by
``--write``, and marked in the tables.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fcntl
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import accuracy_tables  # noqa: E402  beside this file
import recipe_hash  # noqa: E402
from projects import checked_out, tomllib  # noqa: E402

RESULTS = HERE / "results.jsonl"
WORK = HERE / "work.jsonl"
PROGRAMS = HERE / "programs"
_TIMEOUT = 1800
"""Seconds of one rehearsal, or ``--timeout``: a slow machine is no verdict."""
_OF_A_STEP = ("forward", "backward", "step")
_GIB = 1 << 30
_FIGURE = re.compile(r"^figure of (?P<case>.+): (?P<gib>[0-9.e-]+) GiB$", re.MULTILINE)
_OF_AN_ANSWER = ("verdict", "outcome", "allocated", "reserved", "printed")
"""What is kept of a row's first answer when it is run again."""
_TOLD = ("completed", "out-of-memory")
"""Outcomes of a rank whose peak is known."""


def rows() -> list[dict[str, Any]]:
    """All rows, each with what its file says of all of them."""
    found = []
    for path in sorted((HERE / "rows").glob("*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        own = table.pop("row")
        found += [{**table, **row, "file": path.stem} for row in own]
    return found


def results() -> dict[str, dict[str, Any]]:
    """The last result of each row, by the row's name."""
    if not RESULTS.exists():
        return {}
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    return {result["row"]: result for result in map(json.loads, lines)}


def keep(result: dict[str, Any]) -> None:
    """Put a result in its row's place, beside what the first answer to the same recipe was."""
    with one_at_a_time():
        known = results()
        before = known.get(result["row"], {})
        if before.get("recipe") == result["recipe"]:
            result["first"] = before.get("first", {name: before[name] for name in _OF_AN_ANSWER if name in before})
        kept = {**known, result["row"]: result}
        replace(RESULTS, "".join(f"{json.dumps(kept[name])}\n" for name in sorted(kept)))


def stale(every: list[dict[str, Any]], known: dict[str, dict[str, Any]]) -> list[str]:
    """Names of rows whose result is of another recipe than theirs."""
    named = [(title(row), row) for row in every if "not_rehearsed" not in row]
    return [name for name, row in named if name in known and recipe_hash.is_stale(row, known[name])]


def code() -> str:
    """gonogo's commit, with ``+`` where its code was changed since."""
    commit = _git("rev-parse", "--short=9", "HEAD").stdout.strip()
    return commit if _git("diff", "--quiet", "HEAD", "--", "src").returncode == 0 else f"{commit}+"


@functools.cache
def has(commit: str, other: str) -> bool:
    """Whether gonogo at ``commit`` has all of ``other``: unknown commits and changed code have not."""
    return _git("merge-base", "--is-ancestor", other, commit).returncode == 0


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Several runners may keep their answers in the same files."""
    with Path(__file__).open(encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def replace(path: Path, text: str) -> None:
    """Write a file as a whole, so that nobody reads a part of it."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def keep_work(row: dict[str, Any], record: Path) -> None:
    """Put what the rank that was counted computes and moves in one step into its row's place in ``work.jsonl``."""
    found = json.loads(record.read_text(encoding="utf-8"))
    counted = [one for one in found["ranks"] if one.get("work")]
    if not counted:
        return
    rank = max(counted, key=lambda one: sum(part["long_seconds"] for part in one["work"]))
    whole = {part["step"] for part in rank["work"] if part["phase"] == "backward"}
    whole &= {part["step"] for part in rank["work"] if part["phase"] == "step"}
    last = max(whole, default=0)
    parts = [part for part in rank["work"] if part["step"] == last and part["phase"] in _OF_A_STEP]
    line = {"row": title(row), "gpus": row["gpus"], "rank": rank["rank"], "work": parts}
    line |= {"pipeline": rank.get("pipeline", [1, 1, 1]), "stage": (rank.get("as_run") or {}).get("stage")}
    with one_at_a_time():
        lines = WORK.read_text(encoding="utf-8").splitlines() if WORK.exists() else []
        fitted = {old["row"] for old in map(json.loads, lines) if old.get("fitted")}  # for the time model's constants
        line["fitted"] = title(row) in fitted
        kept = {**{json.loads(one)["row"]: one for one in lines}, title(row): json.dumps(line, separators=(",", ":"))}
        replace(WORK, "".join(f"{kept[name]}\n" for name in sorted(kept)))


def title(row: dict[str, Any]) -> str:
    """A row's name in tables and results."""
    return f"{row['framework']}: {row['name']}"


def command_of(row: dict[str, Any], programs: str = "benchmarks/published/programs") -> str:
    """What starts it."""
    return str(row["command"]).format(programs=programs, case=row.get("case", ""))


def packages(names: list[str], into: Path) -> str:
    """Install packages of the recipe that gonogo's environment lacks, without what they need; returns the folder."""
    folder = into / "-".join(names)
    if not folder.is_dir():
        words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), *names]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return str(folder)


def place_of(project: str, commit: str, cache: Path) -> Path:
    """Where a project is checked out at its commit."""
    return cache / f"{project.replace('/', '+')}@{commit[:12]}"


def beside(row: dict[str, Any], mirrors: Path | None, cache: Path) -> str | None:
    """Check out the projects that are on no index, which the recipe imports; or why one can't be had."""
    for project, _, commit in (one.partition("@") for one in row.get("beside", [])):
        folder = place_of(project, commit, cache)
        if not folder.is_dir():
            refused = checked_out({"project": project, "commit": commit}, mirrors, folder)
            if refused is not None:
                return refused
    return None


def environment_of(row: dict[str, Any], cache: Path) -> dict[str, str]:
    """This environment as one that is activated, with the recipe's own packages before it."""
    own = str(Path(sys.executable).parent)
    found = {**os.environ, "NO_COLOR": "1", "PATH": os.pathsep.join((own, os.environ["PATH"]))}
    path = [packages(row["python"], cache)] if row.get("python") else []
    path += [str(place_of(*one.split("@"), cache)) for one in row.get("beside", [])]
    if path:
        found["PYTHONPATH"] = os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return found


def rehearsed(row: dict[str, Any], folder: Path, cache: Path, timeout: int) -> dict[str, Any]:
    """Rehearse one; what the fullest of its ranks takes, or why that isn't known."""
    both = ["--gpus", row["gpus"], "--format", "json", "--timeout", str(timeout)]
    for package in row.get("with", []):
        both += ["--with", package]
    if "as_of" in row:
        both += ["--as-of", row["as_of"]]
    if row.get("own_environment"):
        both.append("--yes")
    if row.get("prepare"):
        subprocess.run(
            [sys.executable, "-m", "gonogo", "prepare", *both, "--", *shlex.split(command_of(row, str(PROGRAMS)))],
            cwd=folder / row.get("folder", "."), env=environment_of(row, cache), stdout=subprocess.DEVNULL,
            timeout=2 * timeout, check=False,
        )  # fmt: skip
    words = [*both, "--ranks", row.get("ranks", "0")]
    start = time.monotonic()
    records = Path(tempfile.mkdtemp(prefix="records-", dir=cache))
    words += ["--keep", str(records)]
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", "rehearse", *words, "--", *shlex.split(command_of(row, str(PROGRAMS)))],
        cwd=folder / row.get("folder", "."), env=environment_of(row, cache), capture_output=True, text=True,
        timeout=2 * timeout, check=False,
    )  # fmt: skip
    seconds = round(time.monotonic() - start)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return {"verdict": "no report", "told": done.stderr.strip()[-300:], "seconds": seconds}
    found = {"verdict": report["verdict"], "seconds": seconds}
    step = (report.get("rehearsal") or {}).get("seconds_of_step")
    if step is not None:
        found["seconds_of_step"] = round(step, 5)
    told = [one["title"] for one in report["findings"]] or report["skipped"]
    if row["means"] == "printed":
        found |= {"figures": printed(records), **({} if report["verdict"] == "GO" else {"told": str(told)[:300]})}
    elif (records / "rehearsal.json").exists():
        keep_work(row, records / "rehearsal.json")
    shutil.rmtree(records)
    ranks = (report.get("rehearsal") or {}).get("ranks", [])
    devices = [device for rank in ranks if rank["outcome"] in _TOLD for device in rank["devices"]]
    if not devices:
        return {**found, "told": str(told)[:300]}
    fullest = max(devices, key=lambda device: device["peak_allocated_bytes"])
    outcomes = {rank["outcome"] for rank in ranks}
    return {
        **found,
        **({"outcome": "out-of-memory"} if "out-of-memory" in outcomes else {}),
        "allocated": round(fullest["peak_allocated_bytes"] / _GIB, 4),
        "reserved": round(fullest["peak_reserved_bytes"] / _GIB, 4),
        "by_category": {name: round(count / _GIB, 4) for name, count in fullest["by_category"].items() if count},
    }


def printed(records: Path) -> dict[str, float]:
    """What the program printed of the cases that it measured."""
    output = (path.read_text(encoding="utf-8", errors="replace") for path in records.glob("rank-*/output.log"))
    return {line["case"]: float(line["gib"]) for text in output for line in _FIGURE.finditer(text)}


def of_case(row: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """A rehearsal's result for one of the cases that its program measures."""
    own = {name: result[name] for name in ("verdict", "seconds", "told") if name in result}
    gib = result.get("figures", {}).get(row["figure"])
    if gib is not None:
        return {**own, "printed": round(gib, 6)}
    return {"told": "the program printed no figure of this case", **own} if result.get("figures") else own


def run(row: dict[str, Any], mirrors: Path | None, cache: Path, timeout: int) -> dict[str, Any]:
    """A row's result: the project checked out at its commit (once a project), the command rehearsed in it."""
    folder = place_of(row["project"], row["commit"], cache)
    if not folder.is_dir():
        refused = checked_out(row, mirrors, folder)
        if refused is not None:
            return {"verdict": "skipped", "told": refused}
        for name in row.get("remove", []):
            (folder / name).unlink(missing_ok=True)
        if "build" in row:
            subprocess.run(
                shlex.split(str(row["build"]).format(programs=PROGRAMS)),
                cwd=folder,
                env=environment_of(row, cache),
                check=True,
            )
    refused = beside(row, mirrors, cache)
    return {"verdict": "skipped", "told": refused} if refused is not None else rehearsed(row, folder, cache, timeout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--mirrors", type=Path)
    parser.add_argument("--again", action="store_true", help="also rows that have a result")
    parser.add_argument("--since", metavar="COMMIT", help="also rows whose result is of a gonogo without this commit")
    parser.add_argument("--timeout", type=int, default=_TIMEOUT, help="seconds of one rehearsal")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--cache", type=Path, help="where checkouts and packages are kept for the next time")
    asked = parser.parse_args()
    for name in stale(rows(), results()):
        print(f"stale, its recipe has changed since it was rehearsed: {name}")
    if asked.write:
        accuracy_tables.write(rows(), results())
        print(accuracy_tables.pair_summary(accuracy_tables.compared(rows(), results()), "en"))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        cache = (asked.cache or Path(temporary)).resolve()
        cache.mkdir(parents=True, exist_ok=True)
        known, of_code = results(), code()
        if asked.since is not None and _git("rev-parse", "-q", "--verify", f"{asked.since}^{{commit}}").returncode != 0:
            parser.error(f"--since {asked.since}: no commit of this repository")
        shared: dict[tuple[str, ...], dict[str, Any]] = {}  # what a rehearsal of several rows gave
        for row in rows():
            name = title(row)
            if asked.names and not any(part in name or part == row["file"] for part in asked.names):
                continue
            if "not_rehearsed" in row:
                continue
            before = known.get(name, {})
            there = bool(before) and not recipe_hash.is_stale(row, before) and not asked.again
            if asked.since is not None:
                there = there and has(before.get("gonogo", ""), asked.since)
            if there:
                continue
            if row.get("means") == "printed":
                of_these = (row["project"], row["commit"], row["gpus"], command_of(row))
                if of_these not in shared:
                    shared[of_these] = run(row, asked.mirrors, cache, asked.timeout)
                found = of_case(row, shared[of_these])
            else:
                found = run(row, asked.mirrors, cache, asked.timeout)
            when = {"day": datetime.date.today().isoformat(), "gonogo": of_code}
            result = {"row": name, "recipe": recipe_hash.recipe_of(row), "command": command_of(row), **found, **when}
            keep(result)
            print(accuracy_tables.line(row, result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
