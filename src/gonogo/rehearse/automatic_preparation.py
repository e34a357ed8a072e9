"""Rehearsals that need no preparation: inputs that are missing here are generated first, in the same call.

They are kept in gonogo's cache, by folder and command; ``gonogo prepare`` generates the same beside the launch, where
the user can see and keep it. If the user has prepared the folder, that is used, and nothing is generated here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from gonogo.check.static_findings import check_project
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.prepared import FOLDER, OF, prepared_parent_override
from gonogo.evidence.rehearsal.record import RankRecord, RehearsalRecord
from gonogo.evidence.run import Run
from gonogo.evidence.setup import Setup
from gonogo.finding import Report, Skipped, Text, UserError, Verdict, sorted_findings, translated, verdict_of
from gonogo.finding.remedy import Purpose, rehearse_again
from gonogo.judge.log_findings import findings_in_log
from gonogo.prepare.environment_mismatch import declared_requirements
from gonogo.prepare.missing_imports import missing_imports
from gonogo.prepare.packages.consent import InstallNotConfirmed, has_consent_or_terminal
from gonogo.prepare.packages.full_environment import TODAY, last_commit_date
from gonogo.prepare.prepare import (
    EnvironmentOptions,
    Launches,
    Preparation,
    parse_prepare_options,
    prepare,
    read_launches,
)
from gonogo.prepare.project_requirements import ProjectPackages
from gonogo.prepare.provided_files import AS_INSTALLED, find_prepared_folder, preparation_fingerprint
from gonogo.prepare.user_cache import cache_folder
from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.launch.capture import LauncherNotInEnvironment, LauncherRefused
from gonogo.rehearse.probe_run import run_probe
from gonogo.rehearse.progress import OnProgress, ProgressReporter
from gonogo.rehearse.ranks.auto import resolve_auto_ranks
from gonogo.rehearse.ranks.rank_options import ROLES
from gonogo.rehearse.request import RehearsalRequest

_GENERATED_ROWS = 64
_MAX_PREPARED_FOLDERS = 20
"""The number of preparations that are kept, the most recently rehearsed ones."""
_READING_INPUTS = translated("finding the models and data that the launch uses")
_GENERATING_MESSAGE = translated("generating the missing inputs: {names}")
_SECOND_PASS = translated("second pass: the inputs that the first one found missing have been generated")
_REHEARSING_AS_OF_TODAY = translated("the torch of the last commit's day is not here: once more, with today's releases")
_AS_OF_TODAY = translated(
    "rehearsed with today's releases of what no file pins, since the torch of the last commit's day is not here "
    "(--as-of DATE: with those of a day)"
)
_ENVIRONMENT_OFFER = translated(
    "rehearsed with the installed packages, although the project requires others ({files}): --yes creates an "
    "environment with the required ones, which later rehearsals reuse"
)
_EVERYTHING = translated("all of the given files")
_NOT_INSTALLED = translated(
    "{names}: not installed here, but the program imports it at startup, so nothing was run: {option} installs "
    "it from the index, for this rehearsal only"
)
_ADDED_IMPORTS = translated(
    "installed for this rehearsal, because the program imports it and no file of the project lists it: {names}"
)
_ENVIRONMENT_NOT_CREATED = translated(
    "{names}: not installed here, although {files} requires it and the program imports it at startup; nothing "
    "was run: --yes creates the required environment, once"
)


_WHOLE_RUN = translated("the whole run")
_MISSING_INPUTS = translated("inputs that are missing here")
_NOT_GENERATED = translated("not generated: {why}")
_ONE_OF_EACH_ROLE = translated("ranks {ranks}: one for each role, since the model is divided among ranks")


def prepare_and_rehearse(
    request: RehearsalRequest, on_progress: OnProgress | None = None
) -> tuple[RehearsalRecord | None, Report]:
    """Rehearse a command after generating its missing inputs; no record if nothing could be run.

    Raises what ``rehearse`` raises.
    """
    try:
        return _prepare_and_rehearse(request, on_progress)
    except LauncherNotInEnvironment as missing:
        own = rehearse_again("--environment", str(AS_INSTALLED), purpose=Purpose.OWN_ENVIRONMENT)
        return None, _nothing_run_report(request, [Skipped(missing.what, missing.why, own)])
    except LauncherRefused as refused:
        return None, _refused_report(request, refused)


def _prepare_and_rehearse(
    request: RehearsalRequest, on_progress: OnProgress | None
) -> tuple[RehearsalRecord | None, Report]:
    folder = Path.cwd()
    say = ProgressReporter(on_progress, time.monotonic())
    say(_READING_INPUTS)
    try:
        launches = read_launches(request.command)
        ranks, note = resolve_auto_ranks(request.ranks, launches[0])
        request = replace(request, ranks=ranks)
        said = [note] if note is not None else []
        if ranks.startswith(ROLES):
            say(_ONE_OF_EACH_ROLE.format(ranks=ranks.removeprefix(ROLES).replace(",", ", ")))
        if find_prepared_folder(folder) is not None:
            record, report = rehearse_and_report(request, on_progress)
            return record, _with_notes(report, said)
    except UserError:
        return rehearse_and_report(request, on_progress)  # it understands commands that the files alone don't determine
    try:
        listed = _list_inputs(request, launches)
    except UserError as error:
        record, report = rehearse_and_report(request, on_progress)
        return record, _with_skipped(_with_notes(report, said), [_skipped_generation(error)])
    with _prepared_in_cache(request.command, folder, listed.packages):
        request, notes = _with_environment(request, listed)
        lacking = _missing_packages(request, launches[0], listed.packages, folder)
        if lacking and not request.yes:
            return None, _missing_packages_report(request, listed.packages, lacking)
        if lacking:
            request = replace(request, with_packages=(*request.with_packages, *lacking))
            said.append(_ADDED_IMPORTS.format(names=", ".join(lacking)))
        wanted = [one.name for one in listed.wanted if one.state == "can-be-made"]
        if wanted:
            say(_GENERATING_MESSAGE.format(names=", ".join(wanted)))
        record, report, failed = _generate_and_rehearse(request, launches, say, on_progress)
        if request.yes and _is_only_date_in_doubt(request, report):
            say(_REHEARSING_AS_OF_TODAY)
            today = replace(request, as_of=TODAY)
            later_record, later, later_failed = _generate_and_rehearse(today, launches, say, on_progress)
            if later.verdict is not Verdict.CANNOT_TELL:
                record, report, failed = later_record, later, later_failed
                notes = [*notes, _AS_OF_TODAY]
    return record, _with_skipped(_with_notes(report, [*notes, *said]), failed)


def _generate_and_rehearse(
    request: RehearsalRequest, launches: Launches, say: ProgressReporter, on_progress: OnProgress | None
) -> tuple[RehearsalRecord, Report, list[Skipped]]:
    """Rehearse with the missing inputs generated, and again if the first pass shows more of them."""
    folder = Path.cwd()
    failed = _generate_missing(request, launches)
    record, report = _rehearse_with_package_fallback(request, on_progress)
    if report.verdict is Verdict.CANNOT_TELL and _ended_early(record):
        before = preparation_fingerprint(folder)
        first = [record.ranks[0]]

        def probe_record() -> RankRecord:
            return first.pop() if first else run_probe(request, on_progress)

        failed = _generate_missing(request, launches, probe_record) or failed
        if preparation_fingerprint(folder) != before:
            say(_SECOND_PASS)
            if request.keep is not None:  # it was new or empty, so its content is from the first pass
                shutil.rmtree(request.keep, ignore_errors=True)
            record, report = _rehearse_with_package_fallback(request, on_progress)
    return record, report, failed


def _is_only_date_in_doubt(request: RehearsalRequest, report: Report) -> bool:
    """Whether a failure is no verdict only because the torch of the day is not here."""
    if report.verdict is not Verdict.CANNOT_TELL or request.as_of is not None or request.keep is not None:
        return False
    return any(one.remedy is not None and one.remedy.purpose is Purpose.RELEASES_OF_TODAY for one in report.skipped)


def _with_notes(report: Report, notes: Sequence[Text]) -> Report:
    """The report with further notes."""
    return msgspec.structs.replace(report, notes=(*report.notes, *notes)) if notes else report


def _with_skipped(report: Report, skipped: Sequence[Skipped]) -> Report:
    """The report with more that wasn't covered, unless it is there already."""
    more = [one for one in skipped if one not in report.skipped]
    return msgspec.structs.replace(report, skipped=(*report.skipped, *more)) if more else report


@contextlib.contextmanager
def automatically_prepared(request: RehearsalRequest) -> Iterator[RehearsalRequest]:
    """Within the block, rehearsals of the command have its inputs: from an earlier preparation, or from its files.

    Yields the request to rehearse.
    """
    folder = Path.cwd()
    if find_prepared_folder(folder) is not None:
        yield request
        return
    try:
        launches = read_launches(request.command)
        listed = _list_inputs(request, launches)
    except UserError:
        yield request
        return
    with _prepared_in_cache(request.command, folder, listed.packages):
        request, _ = _with_environment(request, listed)
        if find_prepared_folder(folder) is None:
            _generate_missing(request, launches)
        yield request


def _rehearse_with_package_fallback(
    request: RehearsalRequest, on_progress: OnProgress | None
) -> tuple[RehearsalRecord, Report]:
    """Rehearse; if the user declines the project's packages, with the installed ones."""
    try:
        return rehearse_and_report(request, on_progress)
    except InstallNotConfirmed:
        if request.environment is not None:
            raise
        request = replace(request, as_installed=True)
        failed: list[Skipped] = []
        with contextlib.suppress(UserError):  # without launches there is nothing to generate
            failed = _generate_missing(request, read_launches(request.command))
        record, report = rehearse_and_report(request, on_progress)
        return record, _with_skipped(report, failed)


def _list_inputs(request: RehearsalRequest, launches: Launches) -> Preparation:
    options = parse_prepare_options(_GENERATED_ROWS, None, [])
    return prepare(request.command, options, _environment_options(request), write=False, probe=None, launches=launches)


def _generate_missing(
    request: RehearsalRequest, launches: Launches, run_probe: Callable[[], RankRecord] | None = None
) -> list[Skipped]:
    """Generate what is missing; returns why it couldn't be, if so: the rehearsal then runs without it."""
    options = parse_prepare_options(_GENERATED_ROWS, None, [])
    try:
        prepare(request.command, options, _environment_options(request), write=True, probe=run_probe, launches=launches)
    except UserError as error:
        return [_skipped_generation(error)]
    return []


def _skipped_generation(error: UserError) -> Skipped:
    return Skipped(_MISSING_INPUTS, _NOT_GENERATED.format(why=error.text))


def _environment_options(request: RehearsalRequest) -> EnvironmentOptions:
    as_installed = request.as_installed or request.environment == AS_INSTALLED
    file = None if as_installed else request.environment
    as_of = request.as_of
    if as_of is None and file is None and not as_installed:
        as_of = last_commit_date(Path.cwd() / FOLDER)  # the kept folder isn't in a repository
    return EnvironmentOptions(file, as_of, (), as_installed)


@contextlib.contextmanager
def _prepared_in_cache(command: Sequence[str], folder: Path, packages: ProjectPackages) -> Iterator[None]:
    """Within the block, keep prepared files in the cache, in a folder for this launch."""
    name = hashlib.sha256(json.dumps([str(folder), *command]).encode()).hexdigest()[:24]
    place = cache_folder("prepared") / name
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / OF).write_text("\n".join([str(folder), ", ".join(packages.files)]), encoding="utf-8")
        _delete_old_preparations(place)
    except (OSError, UnicodeError):
        yield  # rehearse with what is here
        return
    with prepared_parent_override(place):
        yield


def _delete_old_preparations(place: Path) -> None:
    os.utime(place)
    others = sorted(place.parent.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)
    for old in others[_MAX_PREPARED_FOLDERS:]:
        shutil.rmtree(old, ignore_errors=True)


def _with_environment(request: RehearsalRequest, preparation: Preparation) -> tuple[RehearsalRequest, list[Text]]:
    """The request with the installed packages and a note, if nobody agreed to those that the project requires."""
    packages = preparation.packages
    chosen = request.environment is not None or request.as_installed or request.with_packages or request.ray
    if chosen or not packages.files or not packages.differs_from_installed:
        return request, []
    if request.yes or has_consent_or_terminal(Path.cwd()):
        return request, []
    note = _ENVIRONMENT_OFFER.format(files=", ".join(packages.files))
    return replace(request, as_installed=True), [note]


def _missing_packages(
    request: RehearsalRequest, runs: Sequence[Run], packages: ProjectPackages, folder: Path
) -> list[str]:
    """The packages that the program imports at startup and that nothing provides."""
    brought = request.environment is not None and request.environment != AS_INSTALLED
    installs = packages.files and packages.differs_from_installed and not request.as_installed
    if brought or request.ray is not None or installs:
        return []
    with_packages = {one.partition("=")[0].strip().lower() for one in request.with_packages}
    declared = declared_requirements(folder)
    return [name for name in missing_imports(runs, packages, folder, declared) if name not in with_packages]


def _missing_packages_report(request: RehearsalRequest, packages: ProjectPackages, names: Sequence[str]) -> Report:
    """A report instead of a rehearsal that can only end at an import."""
    shown = ", ".join(names)
    if all(name in packages.lines for name in names) and request.environment is None:
        why = _ENVIRONMENT_NOT_CREATED.format(names=shown, files=", ".join(packages.files))
        remedy = rehearse_again("--yes", purpose=Purpose.BUILD_ENVIRONMENT)
    else:
        why = _NOT_INSTALLED.format(names=shown, option=" ".join(f"--with {name}" for name in names))
        options = (word for name in names for word in ("--with", name))
        remedy = rehearse_again(*options, purpose=Purpose.INSTALL_PACKAGE)
    return _nothing_run_report(request, [Skipped(_EVERYTHING, why, remedy)])


def _refused_report(request: RehearsalRequest, refused: LauncherRefused) -> Report:
    """The report on a command that its launcher refuses: NO-GO, unless another release of the launcher is the run's."""
    report = _nothing_run_report(request, [Skipped(_WHOLE_RUN, refused.text)])
    if refused.difference is not None:
        own = rehearse_again("--environment", str(AS_INSTALLED), purpose=Purpose.OWN_ENVIRONMENT)
        gap = Skipped(refused.difference[0], refused.difference[1], own)
        return msgspec.structs.replace(report, skipped=(gap, *report.skipped))
    log = FailureLog([LogLine("", 1, refused.text.en)], Setup(launch=shlex.join(request.command)))
    told = [msgspec.structs.replace(one, spans=()) for one in findings_in_log(log)[:1]]  # no file has that line
    findings = sorted_findings([*told, *report.findings])
    return msgspec.structs.replace(report, findings=findings, verdict=verdict_of(findings, complete=False))


def _nothing_run_report(request: RehearsalRequest, gaps: Sequence[Skipped]) -> Report:
    """A report on the files alone, with what kept the program from being run."""
    files = check_project(request.command)
    return Report(
        command="rehearse",
        verdict=verdict_of(files.findings, complete=False),
        findings=files.findings,
        covered=files.covered,
        skipped=(*gaps, *files.skipped),
    )


def _ended_early(record: RehearsalRecord) -> bool:
    """Whether the first rank ended early by itself."""
    return bool(record.ranks) and record.ranks[0].outcome in ("raised", "unsupported", "completed")
