"""Lives killed between two writes of their first save; what the resume has was seen in real runs on the CPU."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cells import STAGES
from results import write_base

from gonogo.finding.lives.life_report import LifeReport
from gonogo.rehearse.answer import rehearsed
from gonogo.rehearse.request import RehearsalRequest

TRUTH = Path(__file__).parent / "interruptions.json"
_SMALL = (
    "--output_dir out --max_steps 8 --save_steps 2 --report_to none --per_device_train_batch_size 1 --logging_steps 1 "
    "--optim adamw_torch --learning_rate 1e-2"
)


@dataclass(frozen=True)
class InterruptedCell:
    """A program on one rank; ``resume_with`` is what its second command has besides."""

    words: str
    resume_with: str | None = None

    @property
    def name(self) -> str:
        """What it is called in the truth."""
        return f"{self.words} | {self.resume_with or ''}"


_RESUME = "--resume_from_checkpoint out/checkpoint-2"
CELLS = [
    InterruptedCell(f"trainer.py {_SMALL}", _RESUME),
    InterruptedCell(f"trainer.py {_SMALL} --based --adapter", _RESUME),
    InterruptedCell("engine.py 2"),
    InterruptedCell("accelerated.py"),
    InterruptedCell("files.py"),
    InterruptedCell("files.py atomic"),
]


def said(cell: InterruptedCell, folder: Path) -> dict[str, str]:
    """By file after which the run was killed: what gonogo says the resume comes to."""
    write_base(folder)
    before = os.getcwd()
    os.chdir(folder)
    try:
        _, report = rehearsed(
            RehearsalRequest(
                ["torchrun", "--nproc_per_node", "1", *cell.words.split()], gpus="1xH100-80G", as_installed=True,
                life=STAGES, resume_with=cell.resume_with, kill_between_writes=True,
            )
        )  # fmt: skip
    finally:
        os.chdir(before)
    life = report.rehearsal.life if report.rehearsal is not None else None
    assert isinstance(life, LifeReport), report.skipped
    return {os.path.relpath(one.after, folder): one.kind for one in life.interruptions if not one.torn}
