"""Architectures rehearsed at full size: every one that the installed transformers has, and published models by name.

    python benchmarks/architectures.py run [--set published|default] [--only NAME,NAME] [--again NO-GO,CANNOT-TELL]
    python benchmarks/architectures.py table

``run`` rehearses each with ``gonogo rehearse --synthetic-batch``'s program and appends a row to
``benchmarks/architectures.jsonl``; a row that is there for these versions is not run again. ``table`` writes
``docs/architectures.md`` and its Chinese twin from the rows. One process holds torch, transformers and DeepSpeed
imported, within a session of virtual accelerators, and forks a child for each row, one at a time: the child runs the
program just as a worker of ``gonogo rehearse`` does.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from architecture_rows import ROWS, Rows, row_of, versions
from architecture_sets import ACCELERATOR, Case, default_cases, published_cases

TIMEOUT = 120.0


class Server:
    """The process that forks the rehearsals; started anew after one that could not be ended otherwise."""

    def __init__(self, folder: Path, world: int) -> None:
        self.folder = folder
        self.world = world
        self.process: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        from gonogo.rehearse.launch.launch import LaunchedProcess, ResolvedLaunch
        from gonogo.rehearse.launch.worker_environment import worker_environment

        place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(self.world), "LOCAL_WORLD_SIZE": "8",
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # fmt: skip
        process = LaunchedProcess(0, 0, self.world, 8, 0, (), environment=place)
        launch = ResolvedLaunch(
            "torchrun", "module", "", self.world // 8, (process,), dict(os.environ), str(self.folder)
        )
        environment = worker_environment(launch, process, packages=(), scratch=self.folder / "caches")
        environment.update(CUDA_VISIBLE_DEVICES="", TRANSFORMERS_VERBOSITY="error", PYTHONWARNINGS="ignore")
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("architecture_server.py")), str(self.folder),
             str(self.world), ACCELERATOR],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.folder,
        )  # fmt: skip

    def rehearse(self, arguments: list[str], steps: int, timeout: float) -> dict[str, Any]:
        """Run the program with those arguments; the rank's record as JSON, or how the child ended."""
        if self.process is None or self.process.poll() is not None:
            self.process = self._start()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        job = {"arguments": arguments, "steps": steps, "timeout": timeout}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], 10 * timeout + 300)
        if not ready:
            self.close()
            return {"ended": "the server does not answer"}
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"ended": "the server ended"}

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def rehearsed(
    case: Case, arguments: list[str], folder: Path, server: Server, options: argparse.Namespace, here: dict[str, str]
) -> dict[str, Any]:
    """The row of one rehearsal."""
    shutil.rmtree(folder / "record", ignore_errors=True)
    (folder / "record").mkdir()
    ended = server.rehearse(arguments, options.steps, options.timeout)
    row = row_of(case, folder, ended, here)
    row["checkpointing"] = "--gradient-checkpointing" in arguments
    return row


def run(options: argparse.Namespace) -> None:
    rows = Rows.read(ROWS)
    again = set(filter(None, options.again.split(",")))
    cases: list[Case] = []
    if options.set in (None, "published"):
        cases += published_cases()
    if options.set in (None, "default"):
        cases += default_cases()
    if options.only:
        wanted = set(options.only.split(","))
        cases = [c for c in cases if {c.name, c.model_class, c.config.get("model_type")} & wanted]
    if options.strategy:
        cases = [c for c in cases if c.strategy == options.strategy]
    here = versions()
    part, parts = (int(number) for number in options.part.split("/"))
    cases = cases[part - 1 :: parts]
    cases = [c for c in cases if options.force or not rows.has(c, here, again)]
    print(f"{len(cases)} to rehearse", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = Server(folder, cases[0].world if cases else 8)
        try:
            for number, case in enumerate(cases, start=1):
                if options.until and time.strftime("%H:%M") >= options.until:
                    break
                if case.world != server.world:
                    server.close()
                    server = Server(folder, case.world)
                arguments = case.written(folder)
                row = rehearsed(case, arguments, folder, server, options, here)
                if row["outcome"] == "out-of-memory":
                    row = rehearsed(case, [*arguments, "--gradient-checkpointing"], folder, server, options, here)
                rows.add(row)
                if options.keep and row["verdict"] != "GO":
                    kept = Path(options.keep) / f"{case.name}-{case.model_class}-{case.strategy}".replace("/", "_")
                    shutil.rmtree(kept, ignore_errors=True)
                    shutil.copytree(folder / "record", kept)
                    shutil.copyfile(folder / "config.json", kept / "config.json")
                print(f"{number}/{len(cases)} {row['verdict']:<11} {row['seconds']:>6.1f} s  {case.name} "
                      f"{case.model_class} {case.strategy} {'; '.join(row['why'])[:300]}", flush=True)  # fmt: skip
        finally:
            server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--set", choices=("published", "default"), help="which architectures; default: both")
    parser.add_argument("--only", default="", help="names, classes or model types, with commas between")
    parser.add_argument("--strategy", choices=("zero2", "zero3", "zero3-offload"))
    parser.add_argument("--again", default="", help="verdicts of which rows are rehearsed again")
    parser.add_argument("--force", action="store_true", help="rehearse rows again that are there")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds of processor time an architecture")
    parser.add_argument("--part", default="1/1", help="1/2 and 2/2: one half each, for two at once")
    parser.add_argument("--until", default="", help="HH:MM after which no more is begun")
    parser.add_argument("--keep", default="", help="a folder for the records of what is no GO")
    options = parser.parse_args()
    if options.what == "run":
        run(options)
    else:
        from architecture_table import write_tables

        write_tables(Rows.read(ROWS))


if __name__ == "__main__":
    main()
