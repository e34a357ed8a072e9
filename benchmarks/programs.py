"""Programs whose truth is known by running them: is the rehearsal's verdict right?

Each file of ``benchmarks/programs/`` is a small training, healthy or broken in a way that hurts in life; its first
lines say what is true of it and why, which was written down before it was rehearsed:

    python benchmarks/programs.py                      # runs and rehearses all, and prints the table
    python benchmarks/programs.py NAME …               # those whose names have one of these words
    python benchmarks/programs.py --real               # only run them, with gloo on this CPU
    python benchmarks/programs.py --rehearse           # only rehearse them; what really happened is in programs.jsonl
    python benchmarks/programs.py --first              # the table of the first verdicts, before anything was mended

What comes of it is kept in ``benchmarks/programs.jsonl``, a line a program: the truth, the real run's end, the first
verdict and the last.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
RESULTS = HERE / "programs.jsonl"
HELPERS = {"start"}
"""Modules that the programs import: they are no programs themselves."""
PATIENCE = 300


def header(program: Path) -> dict[str, str]:
    """What a program says of itself: its launch, its truth, and the words of its failure."""
    text = ast.get_docstring(ast.parse(program.read_text())) or ""
    found = dict(re.findall(r"^(truth|says|place|ranks|why|launch|here): (.+)$", text, re.MULTILINE))
    return {"ranks": "2", "says": "", "place": "", "launch": "torchrun", "here": "", **found}


def programs(words: list[str]) -> list[Path]:
    """The programs whose names have one of the words; all, if there are none."""
    found = sorted(path for path in PROGRAMS.glob("*.py") if path.stem not in HELPERS)
    return [path for path in found if not words or any(word in path.stem for word in words)]


def launch(program: Path) -> list[str]:
    """The command that starts it: one that starts its ranks itself is a plain script."""
    if header(program)["launch"] == "python":
        return ["python", program.name]
    return ["torchrun", "--nproc_per_node", header(program)["ranks"], program.name]


def run(program: Path) -> dict[str, Any]:
    """Really run it, a process a rank with gloo on this CPU: how it ended, and the first error that it printed.

    The ranks are forked from here, with the variables that torchrun sets, once torch has been imported; and as with
    torchrun one that fails ends the others.
    """
    import torch

    started = time.monotonic()
    alone = header(program)["launch"] == "python"
    world = 1 if alone else int(header(program)["ranks"])
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        work = shutil.copytree(PROGRAMS, Path(folder) / "project", ignore=shutil.ignore_patterns("__pycache__"))
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        variables = {
            "CUDA_VISIBLE_DEVICES": "",
            "DS_ACCELERATOR": "cpu",
            "ACCELERATE_USE_CPU": "true",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "none"}
        variables |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(world))
        variables |= {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1"}
        if alone:
            variables = {
                name: value for name, value in variables.items() if "WORLD" not in name and "MASTER" not in name
            }
        ranks: list[int] = []
        for rank in range(world):
            ranks.append(os.fork())
            if not ranks[-1]:
                os.environ.update(variables, **({} if alone else {"RANK": str(rank), "LOCAL_RANK": str(rank)}))
                torch.set_num_threads(1)
                _be(rank, work, program.name, Path(folder))
        ends = _wait_for(ranks)
        output = "\n".join((Path(folder) / f"rank-{rank}.txt").read_text() for rank in range(world))
    end = "hangs" if ends is None else "fails" if any(ends) else "runs"
    errors = re.findall(r"^((?:\w+\.)*\w*(?:Error|Exception|Unsupported)\b.*)$", output, re.MULTILINE)
    says = header(program)["says"]
    here = header(program)["here"] or ("runs" if header(program)["truth"] == "GO" else "fails")
    return {
        "real": end,
        "error": errors[0][:200] if errors and end != "runs" else "",
        "as_said": (here == "runs") == (end == "runs")
        and (not says or end == "hangs" or bool(header(program)["here"]) or re.search(says, output) is not None),
        "real_seconds": round(time.monotonic() - started),
    }


def _be(rank: int, work: Path, name: str, folder: Path) -> NoReturn:
    """Become that rank: run the program in this forked process, and end."""
    os.setsid()
    os.chdir(work)
    out = os.open(folder / f"rank-{rank}.txt", os.O_CREAT | os.O_WRONLY)
    os.dup2(out, 1)
    os.dup2(out, 2)
    if "WORLD_SIZE" not in os.environ:  # what it spawns imports it by its name, as the module that Python started
        os.execv(sys.executable, [sys.executable, name])
    sys.argv = [name]
    sys.path[0] = str(work)
    status = 0
    try:
        runpy.run_path(name, run_name="__main__")
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _wait_for(ranks: list[int]) -> list[int] | None:
    """The exit statuses; None where they had to be ended because none of them failed, and not all ended."""
    until = time.monotonic() + PATIENCE
    ends: dict[int, int] = {}
    while len(ends) < len(ranks) and time.monotonic() < until:
        for rank in set(ranks) - set(ends):
            ended, status = os.waitpid(rank, os.WNOHANG)
            if ended:
                ends[rank] = status
                if status:
                    until = min(until, time.monotonic() + 5)
        time.sleep(0.1)
    for rank in set(ranks) - set(ends):
        os.killpg(rank, signal.SIGKILL)
        os.waitpid(rank, 0)
    return None if len(ends) < len(ranks) and not any(ends.values()) else list(ends.values())


def rehearse(program: Path) -> dict[str, Any]:
    """What gonogo says of it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        work = shutil.copytree(PROGRAMS, Path(folder) / "project")
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "gonogo", "rehearse", "--format", "json", "--ranks", "all", "--gpus"]
        command += [f"{header(program)['ranks']}xA100-80G", "--", *launch(program)]
        with report.open("w") as out:
            ended = subprocess.run(command, cwd=work, stdout=out, stderr=subprocess.PIPE, text=True, timeout=900)
        try:
            answer = json.loads(_without_this_machine(report.read_text(), work))
        except ValueError:
            return {"verdict": "no report", "findings": [], "error_output": ended.stderr[-500:]}
    findings = [[one["hazard"], one["severity"], one["certainty"]] for one in answer["findings"]]
    ends = [
        f"{rank['outcome']}: {(rank.get('failure') or {}).get('message', '')[:200]}"
        for rank in answer.get("rehearsal", {}).get("ranks", [])
    ]
    return {
        "verdict": answer["verdict"],
        "findings": findings,
        "ranks": ends,
        "not_covered": [f"{one['what']}: {one['why']}"[:400] for one in answer["skipped"]],
        "seconds": round(time.monotonic() - started),
    }


def _without_this_machine(text: str, work: Path) -> str:
    """The text with paths as anyone would have them: results are kept in the repository."""
    return text.replace(sysconfig.get_path("purelib"), "site-packages").replace(f"{work}/", "")


def score(program: Path, verdict: str) -> str:
    """Right, unsure, certain and wrong, or a wrong GO."""
    truth = header(program)["truth"]
    if verdict.upper() == truth:
        return "right"
    if truth == "NO-GO" and verdict.upper() == "GO":
        return "wrong GO"
    return "certain and wrong" if verdict.upper() == "NO-GO" else "unsure"


def kept() -> dict[str, dict[str, Any]]:
    """The results so far, by program."""
    if not RESULTS.exists():
        return {}
    return {one["program"]: one for one in map(json.loads, RESULTS.read_text().splitlines())}


def keep(program: Path, found: dict[str, Any]) -> None:
    """Put what was found to what is known of a program."""
    results = kept()
    row = results.setdefault(program.stem, {"program": program.stem})
    row.update(found)
    row["truth"] = header(program)["truth"]
    if "verdict" in found:
        row.setdefault("first_verdict", found["verdict"])
        row.setdefault("first_findings", found["findings"])
    lines = [json.dumps(results[name], ensure_ascii=False) for name in sorted(results)]
    RESULTS.write_text("\n".join(lines) + "\n")


def table(chosen: list[Path], *, first: bool) -> str:
    """A line a program, then how many are right."""
    counts: dict[str, int] = {}
    lines = []
    results = kept()
    for program in chosen:
        row = results.get(program.stem, {})
        verdict = row.get("first_verdict" if first else "verdict", "")
        judged = score(program, verdict) if verdict else "not run"
        counts[judged] = counts.get(judged, 0) + 1
        found = row.get("first_findings" if first else "findings") or []
        worst = next((f"{name} ({sure})" for name, kind, sure in found if kind == "error"), "")
        really = f"{row.get('real', '?')}{'' if row.get('as_said', True) else ' (not as said)'}"
        lines.append(
            f"{program.stem:<36} {header(program)['truth']:<6} {really:<20} {verdict:<12} {judged:<18} {worst}"
        )
    lines.append("")
    lines.append(", ".join(f"{number} {judged}" for judged, number in sorted(counts.items())) + f" of {len(chosen)}")
    return "\n".join(lines)


def main() -> None:
    """Run, rehearse, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--missing", action="store_true", help="only what has no result yet")
    arguments = parser.parse_args()
    chosen = programs(arguments.names)
    if not arguments.first:
        for program in chosen:
            known = kept().get(program.stem, {})
            if not arguments.rehearse and not (arguments.missing and "real" in known):
                keep(program, run(program))
            if not arguments.real and not (arguments.missing and "verdict" in known):
                keep(program, rehearse(program))
            print(json.dumps(kept()[program.stem], ensure_ascii=False), file=sys.stderr, flush=True)
    print(table(chosen, first=arguments.first))


if __name__ == "__main__":
    main()
