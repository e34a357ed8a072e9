"""``--keep DIR``: the raw records, plans and logs of a rehearsal, for whoever wants to look closer."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gonogo.evidence.paths import exists, is_folder
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Text
from gonogo.finding.errors import UserError
from gonogo.rehearse.workers.workers import Assignment


def check_keep(folder: Path | None) -> None:
    """Raise UserError for a folder that holds something already, or is none."""
    if folder is None or not exists(folder):
        return
    if not is_folder(folder) or any(folder.iterdir()):
        raise UserError(
            Text(
                "--keep {folder}: name a folder that is new or empty", "--keep {folder}：请指定一个新的或空的目录"
            ).format(folder=folder)
        )


def keep_records(folder: Path, record: RehearsalRecord, assignments: Sequence[Assignment]) -> None:
    """Write ``rehearsal.json``, and for each rank its plan, record, progress and output."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rehearsal.json").write_bytes(msgspec.json.format(msgspec.json.encode(record)))
        for assignment in assignments:
            own = folder / f"rank-{assignment.plan.rank}"
            own.mkdir()
            for name in ("plan.json", "record.json", "progress.jsonl", "output.log"):
                if exists(assignment.folder / name):
                    shutil.copyfile(assignment.folder / name, own / name)
    except OSError as error:
        raise UserError(
            Text("--keep {folder}: {why}", "--keep {folder}：{why}").format(folder=folder, why=error.strerror)
        ) from None
