"""One trial of the copy: what its files show, and the outcome of rehearsing it."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import msgspec
from packaging.utils import canonicalize_name

from gonogo.check.findings import CheckResult, check
from gonogo.check.settings import read_settings
from gonogo.evidence.rehearsal.record import Phase, RehearsalRecord
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Report, Severity, Text, Verdict, translated
from gonogo.prepare.packages import installed_version
from gonogo.prepare.packages.names import STACK, can_overlay
from gonogo.rehearse.progress import OnProgress, RehearsalStatus
from gonogo.rehearse.request import RehearsalRequest
from gonogo.trials.cure.copy import WorkingCopy

Rehearse = Callable[[RehearsalRequest, OnProgress | None], tuple[RehearsalRecord, Report]]
"""Rehearses a request in the current folder: returns the record, and the report on the record and the files.

Raises UserError as a rehearsal does.
"""

_PHASES = get_args(Phase)
_ASSIGNMENT_PATTERN = re.compile(r"\w+=")


@dataclass(frozen=True)
class Trial:
    """What is known of the copy in its current state. ``rehearsed`` is None if the files alone already say NO-GO."""

    checked: CheckResult
    record: RehearsalRecord | None = None
    rehearsed: Report | None = None
    ranks: str = "0"

    @property
    def run(self) -> Run | None:
        """The run that the command launches, according to its files."""
        return next((run for run in self.checked.gathered.runs if run.launch is not None), None)

    @property
    def file_errors(self) -> tuple[Finding, ...]:
        """The blocking findings of the files alone."""
        return _blocking_findings(self.checked.report.findings)

    @property
    def blocking_findings(self) -> tuple[Finding, ...]:
        """All that keeps it from GO, the root cause first: of the files, and of the rehearsal if there was one."""
        return _blocking_findings(self.rehearsed.findings) if self.rehearsed is not None else self.file_errors

    @property
    def verdict(self) -> Verdict:
        """The verdict on files and rehearsal together; never GO without a rehearsal."""
        if self.rehearsed is not None:
            return self.rehearsed.verdict
        certain = any(finding.certainty is Certainty.CERTAIN for finding in self.file_errors)
        return Verdict.NO_GO if certain else Verdict.CANNOT_TELL

    @property
    def reached(self) -> tuple[int, int]:
        """How far it came: (optimizer steps, phase) of the rank that came least far."""
        if self.record is None or not self.record.ranks:
            return (0, -1)
        return min(_progress_key(rank.steps, list(rank.phases), rank.outcome) for rank in self.record.ranks)


def _progress_key(steps: int, phases: list[str], outcome: str) -> tuple[int, int]:
    if outcome == "completed":
        return (1 << 30, len(_PHASES))
    return (steps, max((_PHASES.index(phase) for phase in phases), default=-1))


def _blocking_findings(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(
        finding
        for finding in findings
        if finding.severity is Severity.ERROR and finding.certainty is not Certainty.POSSIBLE
    )


@dataclass
class TrialRunner:
    """Checks and rehearses the copy; counts the rehearsals."""

    copy: WorkingCopy
    request: RehearsalRequest
    rehearse: Rehearse
    on_progress: OnProgress | None = None
    pins: tuple[str, ...] = ()
    rehearsals: int = 0
    doing: Text = field(default_factory=lambda: Text("", ""))

    def check(self) -> Trial:
        """Check the files, with the versions that a rehearsal would install in an overlay."""
        with self.copy.as_working_directory():
            settings = read_settings(self.copy.folder)
            checked = check(
                [],
                self.copy.words,
                settings=msgspec.structs.replace(
                    settings, environment=self._environment_file() or settings.environment
                ),
                laid_over=self._overlaid_versions(),
            )
        return Trial(checked)

    def __call__(self, trial: Trial, ranks: str) -> Trial:
        """Rehearse these ranks; returns the trial with the result."""
        self.rehearsals += 1
        with self.copy.as_working_directory():
            record, report = self.rehearse(
                dataclasses.replace(
                    self.request,
                    command=self._command(),
                    ranks=ranks,
                    environment=self._environment_file(),
                    with_packages=self._packages_to_overlay(trial.run),
                    keep=None,
                    count_work=True,
                ),
                self._report_progress if self.on_progress is not None else None,
            )
        return dataclasses.replace(trial, record=record, rehearsed=report, ranks=ranks)

    def _command(self) -> list[str]:
        """The copy's command. That of a life is changed for the resume, so that one that was typed is read back."""
        if not self.request.life or not self.copy.typed:
            return self.copy.words
        words = shlex.split(self.copy.command_script())
        return ["env", *words] if words and _ASSIGNMENT_PATTERN.match(words[0]) else words

    def _report_progress(self, status: RehearsalStatus) -> None:
        assert self.on_progress is not None
        self.on_progress(
            dataclasses.replace(
                status,
                activity=translated("{number}, {doing}: {activity}").format(
                    number=self.rehearsals, doing=self.doing, activity=status.activity
                ),
            )
        )

    def _environment_file(self) -> Path | None:
        """``--environment`` as a path in the copy, if the file belongs to the copy."""
        stated = self.request.environment
        if stated is None:
            return None
        original = (self.copy.original_folder / stated).resolve()
        own = original.is_relative_to(self.copy.original_folder) and self.copy.replace_symlink(original)
        return self.copy.path_in_copy(original) if own else original

    def _overlaid_versions(self) -> dict[str, str] | None:
        """The requested versions and the cure's own pins, which take precedence; None if there are none."""
        parts = [one.partition("==") for one in (*self.request.with_packages, *self.pins)]
        return {canonicalize_name(name.strip()): version.strip() for name, _, version in parts if version} or None

    def _packages_to_overlay(self, run: Run | None) -> tuple[str, ...]:
        """The packages to install in an overlay: requested, pinned by the files, and the cure's pins, which win."""
        own = {canonicalize_name(pin.partition("==")[0]) for pin in self.pins}
        others = (*self.request.with_packages, *self._differing_pins(run))
        return (*(one for one in others if canonicalize_name(one.partition("==")[0].strip()) not in own), *self.pins)

    def _differing_pins(self, run: Run | None) -> tuple[str, ...]:
        """Pins of the requirements file that differ from what is installed; none if an environment was given."""
        if run is None or self.request.environment is not None:
            return ()
        stated = {canonicalize_name(one.partition("==")[0].strip()) for one in self.request.with_packages}
        return tuple(
            f"{package.name}=={package.version}"
            for package in run.environment.packages.values()
            if package.place is not None
            and package.version is not None
            and package.name in STACK
            and not package.address  # a package from a URL is not that release of the index
            and package.name not in stated
            and can_overlay(package.name)
            and installed_version(package.name) != package.version
        )
