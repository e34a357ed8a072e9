"""Rehearsals of public projects in a home folder: is every file of it as before?

    python benchmarks/unchanged.py [--mirrors DIR] [--most 40] [NAME …]

Takes launches of ``tests/projects/launches/`` (DIR as in ``projects.py``) with the installed packages, whatever
the project pins: what is asked is what its programs can change, not the verdict. Each project is laid into a home
folder, beside files of a user's (a note, a key, a checkpoint in the project's output folder), and rehearsed. Compared
are ``git status`` and the checksum, mode and time of every file of that home before and after. Each launch comes a
second time behind a script that sets PATH, and removes and moves folders of the project before it launches. gonogo's
own cache is left out of the comparison.

Exit status 0: nothing had changed, and at least one launch was rehearsed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import projects
import projects_files

_CLEANING = """#!/bin/bash
export PATH=/usr/local/cuda/bin:/usr/bin:/bin:$PATH
rm -rf output; mkdir -p output; mv README.md README.old; chmod -R 700 .git; touch ~/note.txt
{command}
"""


def state_of(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, time and contents of all files and folders, but gonogo's cache."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if ".cache/gonogo" in str(path) or ".local/state/gonogo" in str(path):
            continue
        state = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        found[str(path)] = (state.st_mode, state.st_mtime_ns, digest)
    return found


def git_status(folder: Path) -> str:
    """What git says of the project; it may write to its index, which is not compared."""
    command = ["git", "-c", "core.fileMode=true", "status", "--porcelain"]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False).stdout


def one(launch: dict[str, Any], mirrors: Path | None, home: Path, cleaning: bool) -> str:
    """What came of one launch: ``unchanged``, what changed, or why it was skipped."""
    folder = home / launch["project"].partition("/")[2]
    why_not = projects.checked_out(launch, mirrors, folder)
    if why_not is not None:
        return f"skipped: {why_not}"
    projects_files.lay(folder, launch.get("prepare", {}))
    for name in ("note.txt", ".ssh/id_ed25519", f"{folder.name}/output/checkpoint-1/model.safetensors"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"the user's {name}\n")
    for name in (".cache/gonogo", ".local/state/gonogo"):
        (home / name).mkdir(parents=True)
    place = folder / launch.get("folder", ".")
    command = shlex.split(launch["command"])
    if cleaning:
        (place / "clean_and_launch.sh").write_text(_CLEANING.format(command=launch["command"]))
        command = ["bash", "clean_and_launch.sh"]
    before, status = state_of(home), git_status(folder)
    words = [sys.executable, "-m", "gonogo", "rehearse", "--format", "json", "--gpus", launch["gpus"]]
    words += ["--steps", "1", "--environment", "none", "--", *command]
    environment = {**os.environ, "HOME": str(home), "GIT_OPTIONAL_LOCKS": "0", **launch.get("variables", {})}
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, env=environment, check=False)
    try:
        verdict = json.loads(done.stdout)["verdict"]
    except ValueError:
        verdict = (done.stderr.strip().splitlines() or ["nothing"])[-1][:160]
    after = state_of(home)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if git_status(folder) != status:
        changed.append("git status")
    return f"CHANGED {changed[:5]} ({verdict})" if changed else f"unchanged ({verdict})"


def main() -> int:
    """Rehearse and compare; print a line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mirrors", type=Path, help="a folder of bare clones, OWNER+NAME")
    parser.add_argument("--most", type=int, default=40, help="rehearsals")
    parser.add_argument("names", nargs="*", help="only launches or projects with these in their names")
    options = parser.parse_args()
    counts = {"unchanged": 0, "CHANGED": 0, "skipped": 0}
    for number, launch in enumerate(launches_twice(options.names)):
        if counts["unchanged"] + counts["CHANGED"] >= options.most:
            break
        with tempfile.TemporaryDirectory(prefix="home-", ignore_cleanup_errors=True) as home:
            said = one(launch, options.mirrors, Path(home), cleaning=bool(number % 2))
        counts[said.partition(" ")[0].rstrip(":")] += 1
        print(f"{launch['project']}: {launch['name']}: {said}", flush=True)
    print(", ".join(f"{name}: {count}" for name, count in counts.items()))
    return 1 if counts["CHANGED"] or not counts["unchanged"] else 0


def launches_twice(names: list[str]) -> list[dict[str, Any]]:
    """Launches that need no gonogo prepare, each twice: as it is, and behind a script that cleans up first."""
    found = []
    for launch in projects.launches():
        title = f"{launch['project']}: {launch['name']}".lower()
        if "prepared" not in launch and (not names or any(name.lower() in title for name in names)):
            found += [launch, launch]
    return found


if __name__ == "__main__":
    sys.exit(main())
