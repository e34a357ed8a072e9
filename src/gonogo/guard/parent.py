"""``gonogo run``: runs the command with the guard in its processes, and writes a report when it has ended.

Nothing here may harm the training: if the guard can't be set up, the command runs without it; if the report can't be
written, a message says so; the exit status is always the command's.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from gonogo.check.static_findings import NO_STATIC_FINDINGS, StaticFindings, dump_findings, load_findings
from gonogo.evidence.guarded.files import read_run
from gonogo.evidence.guarded.launch import LaunchRecord, launch_path
from gonogo.finding import Report, translated
from gonogo.guard.child import CommandResult, CommandStartError, run_child
from gonogo.guard.injection import GuardOptions, inject
from gonogo.guard.rank.machine_memory import memory_limit, oom_kills
from gonogo.guard.watch import TroubleWatch
from gonogo.report.atomic import write_atomically
from gonogo.report.untrusted import print_error

_FILES_REPORT_NAME = "check.json"
"""File in the run's folder with the findings of the check before the start."""


class GuardRequest(msgspec.Struct, frozen=True):
    """The command to run, and how to guard it."""

    command: list[str]
    folder: Path
    options: GuardOptions
    verdict: str | None = None
    """The verdict of the check before the start, or None if it was skipped."""
    files: StaticFindings = NO_STATIC_FINDINGS
    """What that check found."""


def default_folder(environment: Mapping[str, str]) -> Path:
    """The folder for the records if none is named: a new one per start, shared by all ranks of a Slurm job step."""
    job, step = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
    if job and step:  # within srun: one gonogo run on each node, or for each task
        restart = environment.get("SLURM_RESTART_COUNT", "0")
        return Path("gonogo-runs", f"slurm-{job}-{step}" + (f"-restart{restart}" if restart != "0" else ""))
    return Path("gonogo-runs", f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")


def run_guarded(request: GuardRequest, environment: Mapping[str, str], language: str) -> CommandResult:
    """Run the command to its end with the guard in its Python processes, and return how it ended.

    If the command can't be started, the status is that of a shell, 127 or 126, with one line on standard error.
    """
    launched = LaunchRecord(
        host=socket.gethostname(),
        pid=os.getpid(),
        command=[word.encode("utf-8", "backslashreplace").decode() for word in request.command],
        cwd=os.getcwd().encode("utf-8", "backslashreplace").decode(),
        started=time.time(),
        host_total=memory_limit(),
        verdict=request.verdict,
    )
    killed_before = oom_kills()
    guarded = dict(environment)
    watch: Callable[[], None] = lambda: None  # noqa: E731
    try:
        request.folder.mkdir(parents=True, exist_ok=True)
        guarded = inject(request.folder, request.options, environment)
        _write_launch_record(request.folder, launched)
        write_atomically(request.folder / _FILES_REPORT_NAME, dump_findings(request.files))
        watch = TroubleWatch(
            request.folder,
            lambda: _print_gravest_finding(request.folder, language),
            lambda: _warn_deleted(request.folder, language),
        ).poll
    except OSError as error:
        _warn_unguarded(request.folder, error, language)

    def record_child(child_pid: int) -> None:
        launched.child = child_pid
        _write_if_possible(request.folder, launched)

    try:
        ended = run_child(request.command, guarded, watch, on_start=record_child)
    except CommandStartError as error:
        print_error(error.text, language)
        ended = CommandResult(error.status)
    watch()  # the folder may have been deleted since the last look
    killed_after = oom_kills()
    launched.ended = time.time()
    launched.exit_status = ended.status
    launched.signals = list(ended.passed_on)
    launched.interrupted = ended.interrupted
    if killed_before is not None and killed_after is not None:
        launched.oom_kills = killed_after - killed_before
    _write_if_possible(request.folder, launched)
    return ended


def report_of_folder(folder: Path) -> Report:
    """Make the report of a folder's records.

    Raises OSError if the folder can't be read.
    """
    from gonogo.guard.report import guarded_run_report

    return guarded_run_report(read_run(folder), files=load_findings(folder / _FILES_REPORT_NAME))


def write_report_files(report: Report, folder: Path, language: str) -> None:
    """Write the report into the folder as text, HTML and JSON. Raises OSError if that fails."""
    from gonogo.report import render

    for name, format_name in (("report.json", "json"), ("report.html", "html"), ("report.txt", "text")):
        write_atomically(folder / name, render(report, format_name, language).encode("utf-8", "backslashreplace"))


def _write_launch_record(folder: Path, launch_record: LaunchRecord) -> None:
    write_atomically(
        launch_path(str(folder), launch_record.host, launch_record.pid), msgspec.json.encode(launch_record)
    )


def _write_if_possible(folder: Path, launch_record: LaunchRecord) -> None:
    try:
        _write_launch_record(folder, launch_record)
    except OSError:  # already reported where the folder was created, or reported when the report is written
        return


def _warn_unguarded(folder: Path, error: OSError, language: str) -> None:
    print_error(
        translated(
            "the guard can't write to {folder} ({why}): the command runs without it; choose another folder "
            "with --folder DIR"
        ).format(folder=folder, why=error.strerror or error),
        language,
    )


def _warn_deleted(folder: Path, language: str) -> None:
    print_error(
        translated(
            "{folder} was deleted while the command was running: the guard has stopped recording, but the "
            "command continues; choose another folder with --folder DIR"
        ).format(folder=folder),
        language,
    )


def _print_gravest_finding(folder: Path, language: str) -> None:
    """Print one line about the most severe finding so far; the whole report is in the folder."""
    report = report_of_folder(folder)
    if not report.findings:
        return
    write_report_files(report, folder, language)
    first = report.findings[0]
    print_error(
        translated("{title}. {cause} ({place})").format(
            title=first.title, cause=first.cause, place=folder / "report.txt"
        ),
        language,
    )
    sys.stderr.flush()
