"""Predicted against real memory, beside what DeepSpeed's and accelerate's estimators say.

    python benchmarks/memory.py              the table, from the results that are kept in memory.jsonl
    python benchmarks/memory.py run [--only PART-OF-NAME] [--again]
    python benchmarks/memory.py predict [--only PART-OF-NAME]

``run`` trains each cell of ``memory_cells.py`` for real (see ``memory_truth.py``: on a CUDA GPU where there is one,
else on the CPU), rehearses the same program as ``gonogo plan`` does, and keeps a row. A row that is there for these
versions and this kind of device is not made again; ``predict`` makes its predictions again. "Fits" is asked for
capacities around the truth: memories of 50 to 99 % of what the cell really took, in which it does not fit, and of 101
to 200 %, in which it does.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
from memory_cells import STEPS, Cell, all_cells
from real_ranks import run_ranks

from gonogo.rehearse.launch.python_start import python_module_command
from gonogo.rehearse.launch.worker_environment import reproducible_environment
from gonogo.report.atomic import write_atomically
from gonogo.trials.plan.choice import UNCERTAINTY_BY_SOURCE
from gonogo.trials.plan.extrapolation import extrapolate, measured_peak
from gonogo.virtual.measuring.jobs import JobEnded, Measured, MeasurementJob
from gonogo.virtual.measuring.server import ServerSettings

RESULTS = Path(__file__).resolve().with_name("memory.jsonl")
TOO_SMALL = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
LARGE_ENOUGH = (1.01, 1.05, 1.1, 1.25, 1.5, 2.0)
SECONDS = 600.0
"""That a training or a rehearsal may take."""
_STACK = ("torch", "deepspeed", "transformers", "accelerate", "peft")
Row = dict[str, Any]


class NotMeasured(Exception):
    """A cell that came to no figures, and why."""


# -- measuring -----------------------------------------------------------------------------------------------------


class Rehearsals:
    """The process that rehearses for ``gonogo plan``; a context manager."""

    def __init__(self, accelerator: str) -> None:
        self._accelerator = accelerator
        self._folder = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Rehearsals:
        folder = Path(self._folder.name)
        place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1",
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}  # fmt: skip
        with open(folder / "server.log", "wb") as log:
            self._process = subprocess.Popen(
                python_module_command(sys.executable, "gonogo.virtual.measuring.server", dies_with_parent=True),
                cwd=folder, stderr=log, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env=reproducible_environment(os.environ, folder / "caches") | place,
            )  # fmt: skip
        self._ask(ServerSettings(self._accelerator, str(folder), 1))
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def _ask(self, line: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(line) + b"\n")
        self._process.stdin.flush()

    def rehearse(self, cell: Cell, depth: int = 0) -> Measured:
        """The cell, with another number of layers where ``depth`` says so. Raises NotMeasured where it ends badly."""
        folder = Path(tempfile.mkdtemp(dir=self._folder.name))
        job = MeasurementJob(
            name=cell.name, arguments=tuple(cell.written(folder, depth)), world_size=cell.world,
            local_world_size=cell.world, answer=str(folder / "answer.json"), timeout=SECONDS, steps=STEPS,
        )  # fmt: skip
        self._ask(job)
        assert self._process is not None
        assert self._process.stdout is not None
        ended = msgspec.json.decode(self._process.stdout.readline(), type=JobEnded)
        if ended.why:
            raise NotMeasured(f"{cell.name}: {ended.why}\n{Path(f'{job.answer}.log').read_text()[-3000:]}")
        measured = msgspec.json.decode(Path(job.answer).read_bytes(), type=Measured)
        if measured.record.outcome != "completed":
            failure = measured.record.failure
            raise NotMeasured(f"{cell.name}: {measured.record.outcome} {failure and failure.message}")
        return measured


def predicted(rehearsals: Rehearsals, cell: Cell) -> dict[str, Any]:
    """What a rehearsal says, and what the line through two shallow ones says."""
    found = figures(rehearsals.rehearse(cell))
    if cell.depths is not None:
        first, second = (measured_peak(rehearsals.rehearse(cell, depth), cell.accumulation) for depth in cell.depths)
        line = extrapolate(first, second, cell.depths, cell.layers)
        found["extended"] = {"allocated": line.allocated, "reserved": line.reserved, "host": line.host}
    return found


def figures(measured: Measured) -> dict[str, Any]:
    """Bytes of the first rank. ``accelerator``: as the program's tensors ask for them, before the allocator rounds.

    Without cuBLAS's workspaces, which a real run on the CPU doesn't have.
    """
    record = measured.record
    (device,) = (one for one in record.devices if one.device == record.device)
    assert record.host is not None
    return {
        "accelerator": sum(device.by_category.values()) - device.by_category.get("workspace", 0),
        "allocated": device.peak_allocated_bytes,
        "reserved": device.peak_reserved_bytes,
        "outside": device.allowance_bytes,
        "host": record.host.peak_bytes,
        "by_category": device.by_category,
    }


def truth(cell: Cell) -> dict[str, Any]:
    """Train the cell for real; what its first rank took. Raises NotMeasured where the training fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = cell.written(folder)
        run_ranks(
            cell.world,
            lambda rank: [
                sys.executable, str(Path(__file__).with_name("memory_truth.py")),
                str(folder / f"rank{rank}.json"), "gonogo.virtual.measuring.program", *arguments,
            ],
            lambda rank: folder / f"rank{rank}.log",
            variables={
                "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "OMP_NUM_THREADS": "2",
                **({} if cuda() else {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}),
            },
            seconds=SECONDS,
        )  # fmt: skip
        answer = folder / "rank0.json"
        if not answer.exists():
            raise NotMeasured(f"{cell.name}: the training failed\n{(folder / 'rank0.log').read_text()[-3000:]}")
        return dict(json.loads(answer.read_text()))


def cuda() -> int:
    """How many CUDA GPUs there are."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def run(only: str, again: bool) -> bool:
    """Measure the cells that have no row yet; whether all came to figures."""
    kind = "cuda" if cuda() else "cpu"
    kept = [row for row in rows() if row["versions"] == versions() and row["truth"]["kind"] == kind]
    done = set() if again else {row["name"] for row in kept}
    whole = True
    with Rehearsals(virtual_of_this_machine()) as rehearsals:
        for cell in all_cells():
            if cell.name in done or only not in cell.name or (kind == "cuda" and cell.world > cuda()):
                continue
            started = time.monotonic()
            try:
                row = measured(rehearsals, cell)
            except NotMeasured as error:
                print(error, file=sys.stderr, flush=True)
                whole = False
                continue
            keep(row)
            print(f"{cell.name}: {errors_of(row)} in {time.monotonic() - started:.0f} s", flush=True)
    return whole


def predict(only: str) -> bool:
    """Predict again what is kept for these versions and was measured on this kind of device."""
    kept = [row for row in rows() if row["versions"] == versions() and only in row["name"]]
    with Rehearsals(virtual_of_this_machine()) as rehearsals:
        for row in kept:
            if (row["truth"]["kind"] == "cuda") == bool(cuda()):
                keep({**row, "predicted": predicted(rehearsals, Cell(**row["cell"]))})
                print(f"{row['name']}: {errors_of(row)}", flush=True)
    return True


def measured(rehearsals: Rehearsals, cell: Cell) -> Row:
    """A cell's row. Raises NotMeasured."""
    from memory_estimators import accelerate_says, deepspeed_says, model_of

    model = model_of(cell)
    return {
        "name": cell.name,
        "cell": dataclasses.asdict(cell),
        "truth": truth(cell),
        "predicted": predicted(rehearsals, cell),
        "deepspeed": deepspeed_says(cell, model),
        "accelerate": accelerate_says(model),
        "versions": versions(),
        "date": datetime.date.today().isoformat(),
    }


def virtual_of_this_machine() -> str:
    """The accelerator that is rehearsed on: the machine's own where it has one."""
    import torch

    return torch.cuda.get_device_name(0) if cuda() else "H100-80G"


def versions() -> dict[str, str]:
    """Of what decides the memory."""
    return {name: metadata.version(name) for name in _STACK}


def rows() -> list[Row]:
    """What is kept: a row for each cell, device and set of versions."""
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()] if RESULTS.exists() else []


def keep(row: Row) -> None:
    """Keep a row, in the place of the one that was there for the same."""
    of = {(one["name"], one["truth"]["device"], str(one["versions"])): one for one in [*rows(), row]}
    write_atomically(RESULTS, "".join(json.dumps(one) + "\n" for one in of.values()).encode(), mode=0o644)


# -- telling -------------------------------------------------------------------------------------------------------

TOOLS: dict[str, Callable[[Row], tuple[float, float] | None]] = {
    "gonogo, rehearsed": lambda row: (_of_truth(row, row["predicted"]), UNCERTAINTY_BY_SOURCE["rehearsed"]),
    "gonogo, extended from two depths": lambda row: (
        (_extended(row), UNCERTAINTY_BY_SOURCE["extended"]) if "extended" in row["predicted"] else None
    ),
    "DeepSpeed estimate_zero*_mem_needs": lambda row: (row["deepspeed"]["accelerator"], 0.0),
    "accelerate estimate-memory": lambda row: (row["accelerate"]["accelerator"], 0.0),
}
"""What each tool says of the accelerator's memory in a cell, and the band that it adds itself before it says "fits"."""


def _of_truth(row: Row, said: dict[str, Any]) -> float:
    """The figure that is like the truth's: with a caching allocator on both sides, or on neither."""
    return float(said["reserved"] if row["truth"]["kind"] == "cuda" else said["accelerator"])


def _extended(row: Row) -> float:
    line, whole = row["predicted"]["extended"], row["predicted"]
    if row["truth"]["kind"] == "cuda":
        return float(line["reserved"])
    return float(line["allocated"] * whole["accelerator"] / whole["allocated"])  # without the allocator's rounding


def real(row: Row) -> float:
    """What the accelerator's memory really held."""
    return float(row["truth"]["reserved"] if row["truth"]["kind"] == "cuda" else row["truth"]["accelerator"])


def errors_of(row: Row) -> str:
    """One line on a cell."""
    said = [f"{tool} {found[0] / real(row) - 1:+.1%}" for tool, ask in TOOLS.items() if (found := ask(row)) is not None]
    return f"{real(row) / 2**20:,.0f} MiB; " + ", ".join(said)


def summary(of: Iterable[Row]) -> list[tuple[str, int, float, float, int, int, int, int]]:
    """For each tool: cells, median and worst error, "fits" that did not of how many, "does not fit" that did."""
    given, table = list(of), []
    for tool, ask in TOOLS.items():
        told = [(found, real(row)) for row in given if (found := ask(row)) is not None]
        if not told:
            continue
        errors = [abs(said / true - 1) for (said, _), true in told]
        wrong_fits = sum(said * (1 + band) <= true * share for (said, band), true in told for share in TOO_SMALL)
        wrong_refusals = sum(said * (1 + band) > true * share for (said, band), true in told for share in LARGE_ENOUGH)
        table.append((tool, len(told), statistics.median(errors), max(errors), wrong_fits, len(told) * len(TOO_SMALL),
                      wrong_refusals, len(told) * len(LARGE_ENOUGH)))  # fmt: skip
    return table


_CHINESE = {"gonogo, rehearsed": "gonogo，完整排练", "gonogo, extended from two depths": "gonogo，由两种深度外推"}


def markdown(of: Iterable[Row], *, chinese: bool = False) -> str:
    """The tools' errors, as the rows of a table in docs/plan.md or its Chinese twin."""
    lines = []
    for tool, _, median, worst, fits, of_small, refused, of_large in summary(of):
        name = _CHINESE.get(tool, tool) if chinese else tool
        lines.append(f"| {name} | {median:.1%} | {worst:.1%} | {fits} / {of_small} | {refused} / {of_large} |")
    return "\n".join(lines)


def worst_host(of: Iterable[Row]) -> float:
    """The worst error of gonogo's host memory in the cells that offload."""
    offloading = [row for row in of if row["cell"]["optimizer"] != "gpu" and row["truth"]["host"]]
    return max(abs(row["predicted"]["host"] / row["truth"]["host"] - 1) for row in offloading)


def print_table(kept: list[Row]) -> None:
    """Every cell, and what the tools' errors come to."""
    for kind in sorted({row["truth"]["kind"] for row in kept}):
        group = [row for row in kept if row["truth"]["kind"] == kind]
        how = {"cpu": "CPU truth: real tensors and real DeepSpeed on the CPU, as tensors ask for memory; kernels' own "
                      "workspaces and the caching allocator's rounding are on neither side",
               "cuda": "CUDA truth: torch.cuda.max_memory_reserved"}[kind]  # fmt: skip
        dates = sorted({row["date"] for row in group})
        print(f"\n{how}\n{group[0]['truth']['device']}; {dates[0]} to {dates[-1]}; "
              + ", ".join(f"{name} {version}" for name, version in group[-1]["versions"].items()))  # fmt: skip
        print(f"\n{'cell':<64}{'real MiB':>10}{'gonogo':>9}{'extrapolate':>10}{'DeepSpeed':>11}{'accelerate':>12}"
              f"{'host MiB':>10}{'gonogo':>9}{'DeepSpeed':>11}")  # fmt: skip
        for row in group:
            said = [ask(row) for ask in TOOLS.values()]
            cells = [f"{found[0] / real(row) - 1:+.1%}" if found else "" for found in said]
            host = row["truth"]["host"]
            of_host = [f"{row[tool]['host'] / host - 1:+.1%}" if host else "" for tool in ("predicted", "deepspeed")]
            print(f"{row['name']:<64}{real(row) / 2**20:>10,.1f}{cells[0]:>9}{cells[1]:>10}{cells[2]:>11}"
                  f"{cells[3]:>12}{(host or 0) / 2**20:>10,.1f}{of_host[0]:>9}{of_host[1]:>11}")  # fmt: skip
        print(
            f"\n{'':<36}{'cells':>6}{'median':>9}{'worst':>9}   said it fits, but did not   said it does not, but did"
        )
        for tool, cells_told, median, worst, fits, of_small, refused, of_large in summary(group):
            print(f"{tool:<36}{cells_told:>6}{median:>9.2%}{worst:>9.1%}   {fits:>5} of {of_small:<16}   "
                  f"{refused:>5} of {of_large}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("table", "run", "predict"), default="table")
    parser.add_argument("--only", default="", help="cells whose name has this in it")
    parser.add_argument("--again", action="store_true", help="measure what has a row, too")
    options = parser.parse_args()
    whole = True
    if options.what == "run":
        whole = run(options.only, options.again)
    elif options.what == "predict":
        whole = predict(options.only)
    print_table([row for row in rows() if options.only in row["name"]])
    sys.exit(0 if whole else 1)


if __name__ == "__main__":
    main()
