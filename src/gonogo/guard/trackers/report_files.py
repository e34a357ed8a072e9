"""Writes the report of a folder's records as files for trackers, in a process of gonogo's own Python.

python -m gonogo.guard.trackers.report_files RECORDS FOLDER LANGUAGE SECONDS
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from gonogo.evidence.guarded.files import read_run
from gonogo.evidence.guarded.guarded_run import GuardedRun
from gonogo.finding import Report
from gonogo.guard.report import guarded_run_report
from gonogo.guard.trackers.files import MARKDOWN, PAGE, SUMMARY, Summary
from gonogo.report import render
from gonogo.report.words import word


def main(records: str, folder: str, language: str, seconds: str) -> None:
    """Write the report as HTML and Markdown, and its summary."""
    report = guarded_run_report(_wait_for_all_ranks(Path(records), float(seconds)))
    for name, format_name in ((PAGE, "html"), (MARKDOWN, "markdown")):
        Path(folder, name).write_text(render(report, format_name, language), encoding="utf-8", errors="replace")
    summary = Summary(list(_finding_lines(report, language)))
    Path(folder, SUMMARY).write_bytes(msgspec.json.encode(summary))


def _finding_lines(report: Report, language: str) -> list[str]:
    return [
        f"{word(one.level.value, language)}[{one.hazard}]: {one.title.in_language(language)}" for one in report.findings
    ]


def _wait_for_all_ranks(records: Path, seconds: float) -> GuardedRun:
    """The run after all ranks have ended, or as it is after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        run = read_run(records)
        ended = [rank for rank in run.ranks if rank.end is not None]
        if len(ended) >= run.world_size or time.monotonic() > deadline:
            return run
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:5])
