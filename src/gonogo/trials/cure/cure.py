"""``gonogo cure``: makes a copy, searches for a cure in it, and returns the copy's differences as a patch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from gonogo.finding import Report
from gonogo.rehearse.progress import OnProgress
from gonogo.trials.cure.answer import cure_report
from gonogo.trials.cure.copy import WorkingCopy
from gonogo.trials.cure.request import CureRequest
from gonogo.trials.cure.search import CureSearch
from gonogo.trials.cure.trial import Rehearse, TrialRunner


@dataclass(frozen=True)
class CureResult:
    """The report, and each changed file before and after, by path."""

    report: Report
    changed: dict[Path, tuple[bytes, bytes]]


def cure(request: CureRequest, scratch: Path, rehearse: Rehearse, on_progress: OnProgress | None = None) -> CureResult:
    """Search for a cure of the command in the current folder; the user's files are not changed.

    Raises UserError for a command or options that can't be rehearsed at all.
    """
    started = time.monotonic()
    copy = WorkingCopy(scratch, Path.cwd(), request.rehearsal.command)
    trier = TrialRunner(copy, request.rehearsal, rehearse, on_progress)
    found = CureSearch(request, trier).run()
    seconds = time.monotonic() - started
    report = cure_report(
        found,
        copy,
        rehearsal_count=trier.rehearsals,
        seconds=seconds,
        patch_file=request.patch_file if found.steps else None,
    )
    return CureResult(report, copy.changed_files())
