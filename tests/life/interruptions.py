"""Lives killed between two writes of their first save; what the resume has was seen in real runs on the CPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cells import STAGES
from results import write_base

from gonogo.finding.lives.life_report import LifeReport
from gonogo.rehearse import interruptions
from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.interruptions import SaveMoment
from gonogo.rehearse.request import RehearsalRequest

REMOVED = " removed"
"""Follows the name of what is removed in a moment."""
TRUTH = Path(__file__).parent / "interruptions.json"
_SMALL = (
    "--output_dir out --max_steps 8 --save_steps 2 --report_to none --per_device_train_batch_size 1 --logging_steps 1 "
    "--optim adamw_torch --learning_rate 1e-2"
)


@dataclass(frozen=True)
class InterruptedCell:
    """A program; ``resume_with`` is what its second command has besides."""

    words: str
    resume_with: str | None = None
    ranks: int = 1
    next_save: bool = False
    """Whether it is killed in the save of the resumed run, which has the first checkpoint beside it."""

    @property
    def name(self) -> str:
        """What it is called in the truth."""
        ranks = f" | {self.ranks} ranks" if self.ranks > 1 else ""
        return f"{self.words} | {self.resume_with or ''}{ranks}{' | next save' if self.next_save else ''}"


_RESUME = "--resume_from_checkpoint out/checkpoint-2"
CELLS = [
    InterruptedCell(f"trainer.py {_SMALL}", _RESUME),
    InterruptedCell(f"trainer.py {_SMALL} --based --adapter", _RESUME),
    InterruptedCell("engine.py 2"),
    InterruptedCell("accelerated.py"),
    InterruptedCell("files.py"),
    InterruptedCell("files.py atomic"),
    InterruptedCell(f"trainer.py {_SMALL}", _RESUME, ranks=2),
    InterruptedCell("engine.py 1", ranks=2),
    InterruptedCell("engine.py 3", ranks=2),
    InterruptedCell("accelerated.py", ranks=2),
    InterruptedCell("shards.py", ranks=2),
    InterruptedCell("shards.py marked", ranks=2),
    # Killed in the next save
    InterruptedCell("files.py each", next_save=True),
    InterruptedCell("files.py each atomic", next_save=True),
    InterruptedCell("accelerated.py rotated", next_save=True),
    InterruptedCell(f"trainer.py {_SMALL} --save_total_limit 1 --newest", next_save=True),
    InterruptedCell("shards.py each", ranks=2, next_save=True),
    InterruptedCell("shards.py marked each", ranks=2, next_save=True),
    InterruptedCell("engine.py 1 each", ranks=2, next_save=True),
    InterruptedCell("engine.py 3 each", ranks=2, next_save=True),
    InterruptedCell("accelerated.py rotated", ranks=2, next_save=True),
    InterruptedCell("sharded.py by-name each", ranks=2, next_save=True),
    InterruptedCell("sharded.py by-name apart", ranks=2, next_save=True),
    InterruptedCell(f"trainer.py {_SMALL} --save_total_limit 1 --newest", ranks=2, next_save=True),
]


def said(cell: InterruptedCell, folder: Path) -> dict[str, str]:
    """By file after which the run was killed: what gonogo says the resume comes to.

    Of several ranks: by the rank that was killed, and the file that it was about to open.
    """
    write_base(folder)
    before = os.getcwd()
    os.chdir(folder)
    select = interruptions._select_moments
    saves = 0

    def compared(every: Sequence[SaveMoment]) -> list[SaveMoment]:
        """Those that the truth has; of the first save one is enough where it is the next one that is asked for."""
        nonlocal saves
        saves += 1
        whole = [one for one in every if not one.torn]
        return select(whole[:1] if cell.next_save and saves == 1 else whole)

    interruptions._select_moments = compared
    try:
        _, report = rehearse_and_report(
            RehearsalRequest(
                ["torchrun", "--nproc_per_node", str(cell.ranks), *cell.words.split()], gpus=f"{cell.ranks}xH100-80G",
                ranks="all", as_installed=True,
                life=STAGES, resume_with=cell.resume_with, kill_between_writes=True, timeout=1800.0,
            )
        )  # fmt: skip
    finally:
        interruptions._select_moments = select
        os.chdir(before)
    life = report.rehearsal.life if report.rehearsal is not None else None
    assert isinstance(life, LifeReport), report.skipped
    tried = life.later_interruptions if cell.next_save else life.interruptions
    if cell.ranks == 1:
        return {os.path.relpath(one.after, folder) + REMOVED * one.removed: one.kind for one in tried if not one.torn}
    # Where all were killed at once, and nothing else was there than without one rank, that rank isn't tried by itself.
    every = [one for one in tried if not one.torn and one.before]
    before_what = {id(one): os.path.relpath(one.before, folder) + REMOVED * one.before_removed for one in every}
    owner = {before_what[id(one)]: one.rank for one in every if one.rank is not None}
    at_once = {before_what[id(one)]: one.kind for one in every if one.rank is None}
    alone = {(one.rank, before_what[id(one)]): one.kind for one in every if one.rank is not None}
    found: dict[str, str] = {}
    for rank in range(cell.ranks):
        for file in dict.fromkeys(before_what.values()):
            kind = alone.get((rank, file), at_once.get(file) if file not in owner else None)
            if kind is not None:
                found[f"rank {rank} before {file}"] = kind
    return found
