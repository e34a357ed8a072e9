"""Memory of saving and resuming, predicted against real: what a rank's accelerator and host hold in each of both.

    python benchmarks/life_memory.py [--only WORDS]

Each program is trained for real on the CPU (``memory_truth.py``: each tensor counted from its first use to its last),
saves, and is resumed; the peaks are those between the step before the save and the next forward, and up to the first
forward of the resumed run. The same command is rehearsed with ``--life train,save,kill,resume``. cuBLAS's workspace,
which the CPU doesn't have, is left out of what is rehearsed; and of the save the host, to which a CPU copies nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE.parent / "tests" / "life"), str(_HERE.parent / "tests")]

from cells import STAGES, write_project  # noqa: E402
from real_ranks import run_ranks  # noqa: E402

from gonogo.rehearse.answer import rehearse_and_report  # noqa: E402
from gonogo.rehearse.request import RehearsalRequest  # noqa: E402

_MOST = 0.03
_SECONDS = 600.0
_SMALL = (
    "--output_dir out --max_steps 8 --save_steps 2 --report_to none --per_device_train_batch_size 1 --logging_steps 1 "
    "--optim adamw_torch --based"
)
_FROM_2 = "--resume_from_checkpoint=out/checkpoint-2"
_CONFIG = {"hidden_size": 512, "intermediate_size": 1024, "vocab_size": 8000}


@dataclass(frozen=True)
class Cell:
    """A program and its arguments, those of its resume besides, and the ranks before and after."""

    words: str
    resume_with: str = ""
    ranks: int = 2
    then: int = 2

    @property
    def name(self) -> str:
        """Of all that it is."""
        return f"{self.words.replace(f' {_SMALL}', '')} | {self.ranks} -> {self.then}"


def _trainer(words: str = "", **options: int) -> Cell:
    return Cell(f"trainer.py {_SMALL} {words}".strip(), _FROM_2, **options)


CELLS = [
    *(_trainer(f"--bf16 --deepspeed z{stage}.json") for stage in (1, 2, 3)),
    _trainer("--adapter --bf16 --deepspeed z2.json"),
    _trainer("--adapter --bf16 --deepspeed z3.json"),
    *(Cell(f"engine.py {stage} wide") for stage in (1, 2, 3)),
    *(Cell(f"engine.py {stage} wide universal", then=4) for stage in (1, 3)),
    Cell("engine.py 2 wide universal", ranks=4),
]


def real(cell: Cell, folder: Path) -> dict[str, int]:
    """The peaks of the rank that holds the most, in bytes. Raises RuntimeError where the training fails."""
    _write(folder)
    peaks = {}
    for life, count in (("first", cell.ranks), ("second", cell.then)):
        words = shlex.split(cell.words)
        if life == "second":
            words += shlex.split(cell.resume_with.replace("=", " "))
        if words[0] == "trainer.py":
            words.append("--use_cpu")
        _run_life(life, words, count, folder)
        answers = [folder / f"{life}{rank}.json" for rank in range(count)]
        if not all(answer.exists() for answer in answers):
            logs = "\n".join((folder / f"{life}{rank}.log").read_text()[-2000:] for rank in range(count))
            raise RuntimeError(f"{cell.name}: its {life} life failed\n{logs}")
        found = [json.loads(answer.read_text()) for answer in answers]
        peaks |= {f"{'save' if life == 'first' else 'resume'} {place}": max(one[place] for one in found)
                  for place in ("accelerator", "host")}  # fmt: skip
    del peaks["save host"]
    return peaks


def _run_life(life: str, words: list[str], count: int, folder: Path) -> None:
    run_ranks(
        count,
        lambda rank: [
            sys.executable, str(_HERE / "memory_truth.py"), "--life", str(folder / f"{life}{rank}.json"),
            Path(words[0]).stem, *words[1:],
        ],
        lambda rank: folder / f"{life}{rank}.log",
        folder,
        {
            "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "",
            "TRUTH": str(folder / "told"), "TRUTH_LIFE": life,
            "PYTHONPATH": os.pathsep.join([str(folder / "watch"), str(folder)]),
        },
        _SECONDS,
    )  # fmt: skip


def predicted(cell: Cell, folder: Path) -> dict[str, int]:
    """The same of a rehearsal. Raises RuntimeError where there is no answer."""
    _write(folder)
    before = os.getcwd()
    os.chdir(folder)
    try:
        record, report = rehearse_and_report(
            RehearsalRequest(
                ["torchrun", "--nproc_per_node", str(cell.ranks), *cell.words.split()],
                gpus=f"{cell.ranks}xH100-80G", ranks="all", as_installed=True, life=STAGES,
                resume_with=cell.resume_with or None,
                resume_on=f"{cell.then}xH100-80G" if cell.then != cell.ranks else None,
            )
        )  # fmt: skip
    finally:
        os.chdir(before)
    life = report.rehearsal.life if report.rehearsal is not None else None
    if life is None or record.first_life is None:
        raise RuntimeError(f"{cell.name}: {report.verdict}, {[one.why.en for one in report.skipped]}")
    workspace = max(
        device.by_category.get("workspace", 0) for rank in record.first_life.ranks for device in rank.devices
    )
    costs = life.costs
    return {"save accelerator": costs.save_gpu_bytes - workspace, "resume accelerator": costs.resume_gpu_bytes,
            "resume host": costs.resume_host_bytes}  # fmt: skip


def _write(folder: Path) -> None:
    write_project(folder, base=_CONFIG)


def main() -> int:
    """Measure each cell and rehearse it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    cells = [cell for cell in CELLS if chosen.only in cell.name]
    within = peaks = 0
    for cell in cells:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            try:
                truth, said = real(cell, Path(one)), predicted(cell, Path(other))
            except RuntimeError as error:
                print(error, flush=True)
                continue
        told = []
        for key in truth:
            off = said[key] / truth[key] - 1
            told.append(f"{key} {truth[key] / 2**20:.2f} MiB, rehearsed {said[key] / 2**20:.2f} ({off:+.1%})")
            peaks += 1
            within += abs(off) <= _MOST
        print(f"{cell.name}: {'; '.join(told)}", flush=True)
    print(f"{within} of {peaks} peaks of {len(cells)} lives are within {_MOST:.0%}")
    return 0 if within == peaks == 3 * len(cells) else 1


if __name__ == "__main__":
    sys.exit(main())
