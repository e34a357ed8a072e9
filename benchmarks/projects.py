"""Launches of public projects, rehearsed as a user would who has a laptop: is the verdict right?

    python benchmarks/projects.py [--mirrors DIR] [--out FILE] [NAME …]
    python benchmarks/projects.py --write    # the numbers in docs/projects.md, of the results that are kept

The launches, each with what to prepare, the verdict expected and why, stand in ``tests/projects/launches/``. DIR holds
bare clones (``OWNER+NAME``, or ``OWNER+NAME/repo``); without it, or for one that it lacks, ``git clone`` is asked. A
project that can't be had is named as skipped, and counted. With
``prepared = true`` that is left to ``gonogo prepare``, and nothing is edited: clone, prepare, rehearse. A verdict is
*unsure* where it is CANNOT-TELL and another
was expected, *wrong* where it is sure of what isn't so. NAME is part of a launch's or a project's name. A launch takes
from half a minute to some; the first time, its environment besides.

Exit status 0: every launch that could be had has the verdict expected.
"""

from __future__ import annotations

import argparse
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
from pathlib import Path
from typing import Any

import projects_files

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]

LAUNCHES = Path(__file__).resolve().parents[1] / "tests" / "projects" / "launches"
RESULTS = Path(__file__).with_name("projects.jsonl")
"""The last result of each launch, without its report; ``first`` is how it was judged before anything was mended."""
PAGES = [LAUNCHES.parents[2] / "docs" / name for name in ("projects.md", "projects.zh-CN.md")]
SAID = (
    ("all", r"\| (?:all|全部) \| \d+ \| \d+ \| \d+ \|"),
    ("three", r"\| (?:prepared by gonogo alone|只由 gonogo 准备) \| \d+ \| \d+ \| \d+ \|"),
    ("first", r"\| (?:at first|最初) \| \d+ \| \d+ \| \d+ \|"),
    ("now", r"\| (?:now|现在) \| \d+ \| \d+ \| \d+ \|"),
)
"""The documents' phrases with numbers in them, each with the key of those in ``counted``."""
_TIMEOUT = 1800
"""Seconds that one launch may take, its environment's installation included."""


def launches() -> list[dict[str, Any]]:
    """All launches, in the order of the tables."""
    found: list[dict[str, Any]] = []
    for path in sorted(LAUNCHES.glob("*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        found += [{**table["commits"][one["project"]], **one} for one in table["launch"]]
    return found


def checked_out(launch: dict[str, Any], mirrors: Path | None, into: Path) -> str | None:
    """The project at its commit in ``into``, with its history; or why it can't be had."""
    name = launch["project"].replace("/", "+")
    places = [] if mirrors is None else [mirrors / name / "repo", mirrors / name, mirrors / f"{name}.git"]
    source = next((str(place) for place in places if (place / "objects").is_dir()), None)
    if source is None and shutil.which("git") is None:
        return "git is not installed"
    command = ["git", "clone", "-q", "--no-checkout"]
    if source is None:
        command += ["--filter=blob:none", f"https://github.com/{launch['project']}"]
    else:
        command += ["--shared", source]
    if _git([*command, str(into)], Path.cwd()) != 0:
        return "the repository could not be cloned"
    if _git(["git", "read-tree", launch["commit"]], into) != 0:
        return f"the repository here has no commit {launch['commit']}"
    _git(["git", "update-ref", "--no-deref", "HEAD", launch["commit"]], into)
    if source is not None:
        _leave_out_what_lacks(into)  # a mirror may lack large files, which git would stop at
    _git(["git", "checkout-index", "-a", "-q"], into)
    for path, project in launch.get("submodules", {}).items():
        at = subprocess.run(
            ["git", "ls-tree", "--object-only", launch["commit"], path], cwd=into, capture_output=True, text=True
        ).stdout.strip()
        shutil.rmtree(into / path, ignore_errors=True)
        why_not = checked_out({"project": project, "commit": at}, mirrors, into / path)
        if why_not is not None:
            return why_not
    return None


def _git(command: list[str], folder: Path) -> int:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(command, cwd=folder, capture_output=True, env=environment)
    return done.returncode


def _leave_out_what_lacks(folder: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-s", "-z"], cwd=folder, capture_output=True, check=True).stdout
    blobs = {line.split()[1]: line.split(b"\t", 1)[1] for line in listed.split(b"\0") if line}
    asked = subprocess.run(
        ["git", "cat-file", "--batch-check=%(objectname) %(objecttype)"],
        cwd=folder, input=b"\n".join(blobs), capture_output=True, check=True,
    ).stdout  # fmt: skip
    lacking = [line.split()[0] for line in asked.splitlines() if line.endswith(b"missing")]
    names = b"\0".join(blobs[one] for one in lacking)
    subprocess.run(["git", "update-index", "--force-remove", "-z", "--stdin"], cwd=folder, input=names, check=True)


def rehearsed(launch: dict[str, Any], folder: Path) -> tuple[dict[str, Any] | None, str]:
    """The report of the launch's rehearsal, None where it ended without one; and what it said to stderr."""
    command = [sys.executable, "-m", "gonogo", "rehearse", "--yes", "--format", "json"]
    command += ["--gpus", launch["gpus"], "--steps", "1"]
    command += [*launch.get("options", []), "--", *shlex.split(launch["command"])]
    environment = {**os.environ, **launch.get("variables", {})}
    if "installed" in launch:  # as ``pip install -e`` there would have it
        paths = [str((folder / launch["installed"]).resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    try:
        done = subprocess.run(
            command,
            cwd=folder / launch.get("folder", "."),
            capture_output=True, text=True, timeout=_TIMEOUT, env=environment,
        )  # fmt: skip
        return json.loads(done.stdout), done.stderr
    except (subprocess.TimeoutExpired, ValueError) as error:
        return None, done.stderr if isinstance(error, ValueError) else "over the time"


def prepared(launch: dict[str, Any], folder: Path) -> str:
    """``gonogo prepare`` in the project, as a user would before the rehearsal; what it said where it failed."""
    command = [sys.executable, "-m", "gonogo", "prepare", "--yes", "--gpus", launch["gpus"]]
    command += launch.get("prepare_options", [])
    command += ["--", *shlex.split(launch["command"])]
    try:
        done = subprocess.run(
            command,
            cwd=folder / launch.get("folder", "."),
            capture_output=True, text=True, timeout=_TIMEOUT, env={**os.environ, **launch.get("variables", {})},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "over the time"
    return "" if done.returncode == 0 else done.stderr or done.stdout


def told(report: dict[str, Any] | None, stderr: str) -> str:
    """The first thing that a user reads beside the verdict."""
    if report is None:
        return stderr.strip().splitlines()[-1][:300] if stderr.strip() else "nothing"
    errors = [one for one in report["findings"] if one["severity"] == "error"]
    if errors:
        return "; ".join(f"{one['hazard']} ({one['certainty']}): {one['title']}"[:200] for one in errors[:2])
    return "; ".join(f"{one['what']}: {one['why']}"[:200] for one in report["skipped"][:1]) or "nothing found"


def judged(launch: dict[str, Any], report: dict[str, Any] | None) -> str:
    """``right``, ``wrong`` (sure of what isn't so), ``unsure`` (CANNOT-TELL, or no report, where more can be known)."""
    if report is None:
        return "unsure"
    hazards = {one["hazard"] for one in report["findings"] if one["severity"] == "error"}
    if report["verdict"] == launch["verdict"]:
        return "right" if launch.get("hazard", "") in {"", *hazards} else "wrong"
    return "unsure" if report["verdict"] == "CANNOT-TELL" else "wrong"


HEADS = {
    "en": "| project | launch | prepared | expected | verdict | judged | at first | seconds |",
    "zh": "| 项目 | 启动命令 | 经 prepare | 预期 | 结论 | 判定 | 首次 | 秒 |",
}


def table(language: str) -> str:
    """All launches with their last results, in Markdown."""
    kept = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    last = {one["launch"]: one for one in kept}
    rows = [HEADS[language], "| --- | --- | --- | --- | --- | --- | --- | ---: |"]
    for launch in launches():
        one = last.get(f"{launch['project']}: {launch['name']}", {})
        judgement = one.get("judged", "not run")
        told = (one.get("verdict", "-"), judgement, one.get("first", judgement), one.get("seconds", "-"))
        prepared = "yes" if launch.get("prepared") else ""
        cells = (launch["project"], launch["name"], prepared, launch["verdict"], *told)
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def counted() -> dict[str, tuple[int, ...]]:
    """What the pages say in numbers: launches, repositories and right ones; judgements at first, and now."""
    kept = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    last = {one["launch"]: one for one in kept}
    results = [(one, last.get(f"{one['project']}: {one['name']}", {"judged": "not run"})) for one in launches()]
    alone = [one for one in results if one[0].get("prepared") and not one[0].get("prepare", {}).keys() - {"lacking"}]

    def summary(some: list[tuple[dict[str, Any], dict[str, Any]]]) -> tuple[int, ...]:
        return len(some), len({one["project"] for one, _ in some}), sum(one["judged"] == "right" for _, one in some)

    def judgements(words: list[str]) -> tuple[int, ...]:
        return tuple(words.count(word) for word in ("right", "unsure", "wrong"))

    return {
        "all": summary(results),
        "three": summary(alone),
        "first": judgements([one.get("first", one["judged"]) for _, one in results]),
        "now": judgements([one["judged"] for _, one in results]),
    }


def write() -> None:
    """Put the numbers into the documents' sentences."""
    numbers = counted()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        said = [(what, pattern) for what, pattern in SAID if re.search(pattern, text)]
        if len(said) != len(SAID):
            raise SystemExit(f"{page}: a phrase of {SAID} is not there any more: its numbers would stay old")
        for what, pattern in said:
            text = re.sub(pattern, functools.partial(_renumbered, numbers[what]), text)
        page.write_text(text, encoding="utf-8")


def _renumbered(numbers: tuple[int, ...], phrase: re.Match[str]) -> str:
    left = iter(numbers)
    return re.sub(r"\d+", lambda _: str(next(left)), phrase[0])


def main() -> int:
    """Rehearse each launch and print the score."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mirrors", type=Path, help="a folder of bare clones, OWNER+NAME")
    parser.add_argument(
        "--work", type=Path, help="where the projects are checked out, and left; else a temporary folder"
    )
    parser.add_argument("--out", type=Path, help="append each launch's result there, a JSON line each")
    parser.add_argument(
        "--write", action="store_true", help="write the documents' numbers of the results that are kept"
    )
    parser.add_argument("names", nargs="*", help="only launches or projects with these in their names")
    options = parser.parse_args()
    if options.write:
        write()
        return 0
    score = dict.fromkeys(("right", "unsure", "wrong", "skipped"), 0)
    for launch in launches():
        title = f"{launch['project']}: {launch['name']}"
        if options.names and not any(name.lower() in title.lower() for name in options.names):
            continue
        work = Path(tempfile.mkdtemp(prefix="projects-", dir=options.work))
        folder = work / launch["project"].partition("/")[2]
        why_not = checked_out(launch, options.mirrors, folder)
        if why_not is not None:
            score["skipped"] += 1
            print(f"skipped: {title}: {why_not}", flush=True)
            continue
        projects_files.lay(folder, launch.get("prepare", {}))
        start = time.monotonic()
        listed = prepared(launch, folder) if launch.get("prepared") else ""
        seconds_to_prepare = time.monotonic() - start
        report, stderr = rehearsed(launch, folder)
        seconds = time.monotonic() - start
        judgement = judged(launch, report)
        score[judgement] += 1
        verdict = "no report" if report is None else report["verdict"]
        print(f"{judgement}: {title}: {verdict}, expected {launch['verdict']}, {seconds:.0f} s", flush=True)
        if judgement != "right":
            print(f"    {told(report, stderr)}", flush=True)
        if options.out is not None:
            line = {
                "launch": title,
                "verdict": verdict,
                "judged": judgement,
                "seconds": round(seconds),
                "seconds_to_prepare": round(seconds_to_prepare),
                "prepare": listed[-3000:],
                "stderr": stderr[-3000:],
                "report": report,
            }
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        if options.work is None:
            shutil.rmtree(work, ignore_errors=True)
    print(", ".join(f"{name}: {count}" for name, count in score.items()))
    return 1 if score["wrong"] or score["unsure"] else 0


if __name__ == "__main__":
    sys.exit(main())
