"""A rehearsal with other settings, in a copy of the project, so that the user's files are not changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from gonogo.check.findings import check
from gonogo.check.settings import read_settings as settings_of
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.evidence.run import Run
from gonogo.finding import Edit, Report, UserError, translated
from gonogo.finding.rehearsal import AlsoRehearsed, ChangedSetting, Rehearsal, downsample_timeline
from gonogo.rehearse.answer import was_interrupted
from gonogo.rehearse.progress import OnProgress, RehearsalStatus
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.viewer_files import ViewerFiles
from gonogo.rehearse.workers.scratch import scratch_folder
from gonogo.trials.cure.answer import with_step_time
from gonogo.trials.cure.copy import WorkingCopy
from gonogo.trials.what_if.setting_changes import Settings, edits_for, format_settings
from gonogo.trials.what_if.step_scaling import step_scaling

Rehearse = Callable[[RehearsalRequest, OnProgress | None], tuple[RehearsalRecord | None, Report]]
"""Rehearses a request in the current folder. Raises the same as a rehearsal."""

_NO_EDITABLE_RUN = translated(
    "the command starts no training whose settings gonogo can change: change them in its files"
)
_ACTIVITY_OF_VARIANT = translated("with {settings}: {activity}")


def rehearse_with(
    request: RehearsalRequest,
    changed: Settings,
    also: Sequence[Settings],
    rehearse: Rehearse,
    on_progress: OnProgress | None = None,
) -> tuple[RehearsalRecord | None, Report]:
    """Rehearse the current folder's command with the settings of ``--set``, and then with each of ``--also``.

    The report is that of the first rehearsal and includes the others. Raises UserError, before anything is run, if a
    setting can't be changed in the run's files.
    """
    with scratch_folder() as scratch:
        first = ChangedRun(request, changed, scratch / "0") if changed else None
        others = [
            ChangedRun(
                replace(request, ranks="0", keep=None, viewers=ViewerFiles()), {**changed, **one}, scratch / name
            )
            for name, one in zip(map(str, itertools.count(1)), also, strict=False)
        ]
        if first is not None:
            record, report = first.rehearse_copy(rehearse, on_progress)
        else:
            record, report = rehearse(request, on_progress)
            report = _with_times(report, record) if record is not None else report
        if report.rehearsal is None or record is None or was_interrupted(record):
            return record, report
        found = []
        for other in others:
            _, one = other.rehearse_copy(rehearse, on_progress)
            found.append(summarize_variant(other.settings, one))
    if found:
        report = msgspec.structs.replace(report, rehearsal=msgspec.structs.replace(report.rehearsal, also=tuple(found)))
    return record, report


class ChangedRun:
    """The run in a copy of its project, with changed settings."""

    def __init__(self, request: RehearsalRequest, settings: Settings, scratch: Path) -> None:
        """Make the copy. Raises UserError if a setting can't be changed in the run's files."""
        self.settings = settings
        self._command = tuple(request.command)
        scratch.mkdir()
        copy = self._copy = WorkingCopy(scratch, Path.cwd(), request.command)
        run = _run_in_copy(copy)
        if run is not None and run.launch is not None and not run.launch.source.writable:
            copy.write_command_script()
            run = _run_in_copy(copy)
        steps: list[list[Edit]] = []
        for name, value in settings.items():
            if run is None:
                raise UserError(_NO_EDITABLE_RUN)
            with copy.as_working_directory():
                steps.append(edits_for(run, name, value))
            if not copy.contains_edited_files(steps[-1]):
                raise UserError(_NO_EDITABLE_RUN)
            copy.reset_and_apply(steps)
            run = _run_in_copy(copy)
        self._changed = tuple(
            ChangedSetting(name, value, tuple(dict.fromkeys(copy.original_path_text(edit.path) for edit in edits)))
            for (name, value), edits in zip(settings.items(), steps, strict=True)
        )
        self._request = replace(request, command=copy.words, environment=_path_in_copy(request.environment, copy))

    def rehearse_copy(
        self, rehearse: Rehearse, on_progress: OnProgress | None
    ) -> tuple[RehearsalRecord | None, Report]:
        """Rehearse the copy; the report refers to the user's own files."""

        def report_progress(status: RehearsalStatus) -> None:
            assert on_progress is not None
            activity = _ACTIVITY_OF_VARIANT.format(settings=format_settings(self.settings), activity=status.activity)
            on_progress(replace(status, activity=activity))

        with self._copy.as_working_directory():
            record, report = rehearse(self._request, report_progress if on_progress is not None else None)
            report = _with_times(report, record) if record is not None else report
        report = _with_user_paths(report, self._copy)
        findings = tuple(msgspec.structs.replace(finding, fixes=()) for finding in report.findings)  # for the copy
        rehearsal = report.rehearsal
        if rehearsal is not None:
            rehearsal = msgspec.structs.replace(rehearsal, command=self._command, changed=self._changed)
        return record, msgspec.structs.replace(report, findings=findings, rehearsal=rehearsal)


def summarize_variant(settings: Settings, report: Report) -> AlsoRehearsed:
    """Summarize the report of a run with other settings, for the main report."""
    rehearsal = report.rehearsal
    rank = rehearsal.ranks[0] if rehearsal is not None and rehearsal.ranks else None
    own = next((device for device in rank.devices if device.device == rank.device), None) if rank is not None else None
    timeline = next((one for one in rank.timelines if one.device == rank.device), None) if rank is not None else None
    run = rank.as_run if rank is not None else None
    return AlsoRehearsed(
        settings=dict(settings),
        verdict=report.verdict.value,
        reason=report.findings[0].title if report.findings and report.verdict.value != "GO" else None,
        peak_allocated_bytes=own.peak_allocated_bytes if own is not None else 0,
        peak_reserved_bytes=own.peak_reserved_bytes if own is not None else 0,
        host_bytes_of_node=_host_bytes_per_node(rehearsal),
        seconds_of_step=rehearsal.seconds_of_step if rehearsal is not None else None,
        tokens_per_second_per_gpu=rehearsal.tokens_per_second_per_gpu if rehearsal is not None else None,
        samples=run.samples[1] if run is not None and run.samples else None,
        tokens=run.tokens[1] if run is not None and run.tokens else None,
        accumulation=run.accumulation[1] if run is not None and run.accumulation else None,
        curve=downsample_timeline(timeline) if timeline is not None else None,
        min_tokens=run.tokens[0] if run is not None and run.tokens else None,
    )


def _with_times(report: Report, record: RehearsalRecord) -> Report:
    """The report with what a step takes, and would take with other micro-batches."""
    report = with_step_time(report, record)
    rehearsal = report.rehearsal
    if rehearsal is None or rehearsal.seconds_of_step is None:
        return report
    rehearsal = msgspec.structs.replace(rehearsal, step_scaling=step_scaling(record))
    return msgspec.structs.replace(report, rehearsal=rehearsal)


def _host_bytes_per_node(rehearsal: Rehearsal | None) -> int:
    node = rehearsal.host_per_node if rehearsal is not None else None
    return node.peak_bytes if node is not None else 0


def _run_in_copy(copy: WorkingCopy) -> Run | None:
    """The run that the copy's command launches; replaces the symlinks to its files by real copies."""
    with copy.as_working_directory():
        checked = check([], copy.words, settings=settings_of(copy.folder))
    for path in checked.gathered.files.sources:
        original = copy.original_path(path)
        if original is not None:
            copy.replace_symlink(original)
    return next((run for run in checked.gathered.runs if run.launch is not None), None)


def _path_in_copy(environment: Path | None, copy: WorkingCopy) -> Path | None:
    """The counterpart in the copy of an ``--environment`` file that belongs to the project."""
    if environment is None:
        return None
    original = copy.original_folder / environment
    return copy.path_in_copy(original) if copy.path_in_copy(original).exists() else environment


def _with_user_paths(report: Report, copy: WorkingCopy) -> Report:
    """The report, with paths of the copy replaced by the user's own in all texts."""

    def with_user_paths(value: Any) -> Any:
        if isinstance(value, str):
            plain = copy.with_original_paths(value)
            return plain if plain != value else value
        if isinstance(value, msgspec.Struct):
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            new = {name: mapped for name, one in fields.items() if (mapped := with_user_paths(one)) is not one}
            return msgspec.structs.replace(value, **new) if new else value
        if isinstance(value, tuple | list):
            parts = [with_user_paths(one) for one in value]
            same = all(new is old for new, old in zip(parts, value, strict=True))
            return value if same else type(value)(parts)
        if isinstance(value, dict):
            return {with_user_paths(name): with_user_paths(one) for name, one in value.items()} if value else value
        return value

    mapped: Report = with_user_paths(report)
    return mapped
