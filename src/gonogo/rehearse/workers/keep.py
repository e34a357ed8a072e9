"""``--keep DIR``: the raw records, plans and logs of a rehearsal, for whoever wants to look closer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gonogo.confinement.reading import read_written
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


def keep_records(
    folder: Path, record: RehearsalRecord, assignments: Sequence[Assignment], redact: Callable[[str], str]
) -> None:
    """Write ``rehearsal.json``, and for each rank its plan, record, progress and output, without secrets.

    ``record`` has none already.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rehearsal.json").write_bytes(msgspec.json.format(msgspec.json.encode(record)))
        for assignment in assignments:
            own = folder / f"rank-{assignment.plan.rank}"
            own.mkdir()
            for name in ("plan.json", "record.json", "progress.jsonl", "output.log"):
                _copy(assignment.folder / name, own / name, redact)
    except OSError as error:
        raise UserError(
            Text("--keep {folder}: {why}", "--keep {folder}：{why}").format(folder=folder, why=error.strerror)
        ) from None


def _copy(source: Path, target: Path, redact: Callable[[str], str]) -> None:
    """What the program had a hand in is read as a stranger's; bytes that are no text stay as they are."""
    data = read_written(source)
    if data is not None:
        text = redact(data.decode("utf-8", "surrogateescape"))
        target.write_bytes(text.encode("utf-8", "surrogateescape"))
