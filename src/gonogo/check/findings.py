"""``gonogo check`` as a function: from the files of a run to findings, before it is launched."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from gonogo.check.certainty import (
    CERTAINTY_ORDER,
    downgrade_assumed_versions,
    downgrade_other_declarations,
    downgrade_rewritten_config,
    downgrade_unreached,
)
from gonogo.check.fixes import with_diffs
from gonogo.check.parallel import parallel_map
from gonogo.check.runs import FAULT, GatheredRuns, gather_runs_of_inputs
from gonogo.check.settings import CheckSettings, matches_any
from gonogo.check.time_limit import TimeLimitReached, time_limit
from gonogo.evidence.paths import is_folder, resolve_path
from gonogo.evidence.patterns import lazy_compile
from gonogo.evidence.run import Run
from gonogo.evidence.script.parse import gc_disabled
from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import (
    Certainty,
    Finding,
    Report,
    Severity,
    Skipped,
    Text,
    Verdict,
    sorted_findings,
    translated,
    verdict_of,
)
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import FILES, hazards_at_stages

# Comments start with "#" in shell scripts, YAML, Python and requirements, and with "//" in a JSON with comments.
_ALLOW_COMMENT_PATTERN = lazy_compile(rb"(?:#|//)\s*gonogo:\s*allow\s+([\w*?\[\]-]+(?:\s*,\s*[\w*?\[\]-]+)*)")
_COMMENT_LINE_PATTERN = lazy_compile(rb"\s*(?:#|//)")

_Evidence = TypeVar("_Evidence")
_MAX_FINDINGS = 50
"""Findings of one hazard in one file: beyond this number they repeat the same mistake."""
_MORE_FINDINGS = translated("{hazard}: more than {limit} findings in one file; the first {limit} are shown")


class CheckResult(msgspec.Struct, frozen=True):
    """A check's report, what it was made from, and whether the settings make it fail."""

    report: Report
    gathered: GatheredRuns
    seconds: float
    failing: bool

    @property
    def exit_status(self) -> int:
        """0 GO, 1 NO-GO or a finding at or above ``fail-on``, 3 CANNOT-TELL."""
        return Verdict.NO_GO.exit_status if self.failing else self.report.verdict.exit_status


def check(
    paths: Sequence[str] = (),
    command: Sequence[str] = (),
    *,
    settings: CheckSettings | None = None,
    use_installed: bool = True,
    laid_over: Mapping[str, str] | None = None,
    allow_no_files: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> CheckResult:
    """Check files and folders, or a command with all files that it names.

    ``use_installed``: take the versions of this interpreter's packages if no file states them. ``laid_over``:
    versions (by canonical package name) that replace the installed ones. ``allow_no_files``: don't report a gap if
    the given files are of no type that gonogo checks. ``on_progress`` is called with the number of runs checked and
    the total. Raises UserError for a path that doesn't exist.
    """
    with gc_disabled():  # the trees are all kept: garbage collection would take a fifth of the time
        return _check_without_gc(
            paths, command, settings or CheckSettings(), use_installed, laid_over, allow_no_files, on_progress
        )


def _check_without_gc(
    paths: Sequence[str],
    command: Sequence[str],
    settings: CheckSettings,
    use_installed: bool,
    laid_over: Mapping[str, str] | None,
    allow_no_files: bool,
    on_progress: Callable[[int, int], None],
) -> CheckResult:
    """The check itself, run with garbage collection disabled."""
    start = time.perf_counter()
    gathered = gather_runs_of_inputs(
        paths, command, settings=settings, use_installed=use_installed, version_overrides=laid_over
    )
    findings: list[Finding] = []
    failed: dict[str, Skipped] = {}
    cut: set[str] = set()
    hazards = [hazard for hazard in hazards_at_stages(*FILES) if settings.selects_hazard(hazard_names(hazard))]
    names = {hazard.name: hazard_names(hazard) for hazard in hazards}
    handlers = _HazardHandlers(hazards)
    for found, faults, more in parallel_map(
        lambda number: handlers.findings_in(gathered.runs[number]),
        len(gathered.runs),
        lambda done: on_progress(done, len(gathered.runs)),
    ):
        findings += found
        failed.update(faults)
        cut |= more
    skipped = (*gathered.skipped, *failed.values())
    sources = gathered.files.sources
    kept = [
        finding
        for finding in _deduplicate(findings)
        if not is_allowed(finding, sources, names[finding.hazard])
        and not any(settings.ignores_in_file(span.path, names[finding.hazard]) for span in finding.spans[:1])
    ]
    shown = with_diffs(sorted_findings(kept), {path: source.data for path, source in sources.items()})
    gaps = skipped if allow_no_files else (*gathered.not_ours, *skipped)
    complete = bool(gathered.covered) and not gaps
    report = Report(
        "check",
        verdict_of(shown, complete=complete),
        shown,
        covered=gathered.covered,
        skipped=(*gathered.not_ours, *skipped) or (() if gathered.covered else (_NOTHING_TO_CHECK,)),
        notes=(*gathered.notes, *(_MORE_FINDINGS.format(hazard=name, limit=_MAX_FINDINGS) for name in sorted(cut))),
    )
    failing = any(
        finding.severity is Severity.ERROR and CERTAINTY_ORDER[finding.certainty] >= CERTAINTY_ORDER[settings.fail_on]
        for finding in shown
    )
    return CheckResult(report, gathered, time.perf_counter() - start, failing)


_NOTHING_TO_CHECK = Skipped(
    translated("all of the given files"),
    translated("no launch script, DeepSpeed or accelerate config, training script or requirements file found"),
)


_SECONDS_PER_SCRIPT = 1.0
"""Of processor time, for one hazard; a script of a thousand lines takes milliseconds."""
_STOPPED = translated("it took more than {seconds} s of processor time on {path}, and was stopped")


class _HazardHandlers:
    """The hazards to call for each kind of evidence: those that override its handler."""

    def __init__(self, hazards: Sequence[Hazard]) -> None:
        def hazards_overriding(handler: str) -> list[Hazard]:
            base = getattr(Hazard, handler)
            return [hazard for hazard in hazards if getattr(type(hazard), handler) is not base]

        self._config = hazards_overriding("in_config")
        self._launch = hazards_overriding("in_launch")
        self._script = hazards_overriding("in_script")
        self._environment = hazards_overriding("in_environment")
        self._faults: dict[str, Skipped] = {}
        self._cut: set[str] = set()

    def findings_in(self, run: Run) -> tuple[list[Finding], dict[str, Skipped], set[str]]:
        """The findings of all hazards in a run, the hazards that raised, and those cut at the maximum number."""
        self._faults, self._cut = {}, set()
        found: list[Finding] = []
        if run.config is not None:
            for hazard in self._config:
                found += downgrade_rewritten_config(self._call_handler(hazard, hazard.in_config, run.config, run), run)
        if run.launch is not None:
            for hazard in self._launch:
                found += self._call_handler(hazard, hazard.in_launch, run.launch, run)
        for script in run.scripts:
            for hazard in self._script:
                found += self._script_findings(hazard, script, run)
        for hazard in self._environment:
            found += self._environment_findings(hazard, run)
        return downgrade_unreached(found, run), self._faults, self._cut

    def _script_findings(self, hazard: Hazard, script: Script, run: Run) -> list[Finding]:
        try:
            with time_limit(_SECONDS_PER_SCRIPT):
                return self._call_handler(hazard, hazard.in_script, script, run)
        except TimeLimitReached:
            why = _STOPPED.format(seconds=f"{_SECONDS_PER_SCRIPT:g}", path=script.path)
            self._faults.setdefault(hazard.name, Skipped(Text(hazard.name, hazard.name), why))
            return []

    def _environment_findings(self, hazard: Hazard, run: Run) -> list[Finding]:
        found = self._call_handler(hazard, hazard.in_environment, run.environment, run)
        if any(finding.certainty is Certainty.CERTAIN for finding in found):
            for other in run.in_alternative_environments():
                as_declared = self._call_handler(hazard, hazard.in_environment, other.environment, other)
                found = downgrade_other_declarations(found, other.environment.sources[0].en, as_declared)
        return found

    def _call_handler(
        self, hazard: Hazard, handler: Callable[[_Evidence, Run], Iterator[Finding]], evidence: _Evidence, run: Run
    ) -> list[Finding]:
        """The findings of one hazard. If it raises, it is recorded as faulty and has no findings."""
        try:
            found = list(islice(handler(evidence, run), _MAX_FINDINGS + 1))
            if len(found) > _MAX_FINDINGS:
                self._cut.add(hazard.name)
                found = found[:_MAX_FINDINGS]
            declared_run = (
                run.with_declared_environment()
                if any(finding.certainty is not Certainty.POSSIBLE for finding in found)
                else None
            )
            return (
                found
                if declared_run is None
                else downgrade_assumed_versions(found, list(islice(handler(evidence, declared_run), _MAX_FINDINGS)))
            )
        except Exception as error:
            if os.environ.get("GONOGO_DEBUG"):
                raise
            what = f"{type(error).__name__}: {error}"
            self._faults.setdefault(hazard.name, Skipped(Text(hazard.name, hazard.name), FAULT.format(what=what[:200])))
            return []


def _deduplicate(findings: Sequence[Finding]) -> list[Finding]:
    """Remove duplicates, which occur if several runs share a file; the most severe and most certain finding is kept.

    Findings of one hazard at the same place count as one, even if they come from different launches.
    """
    kept: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        first = finding.spans[0] if finding.spans else None
        place = (first.path, first.line, first.column) if first else (finding.cause.en,)
        key = (finding.hazard, finding.parameter, *place)
        before = kept.get(key)
        if before is None or _severity_and_certainty_rank(finding) > _severity_and_certainty_rank(before):
            kept[key] = finding
    return list(kept.values())


def _severity_and_certainty_rank(finding: Finding) -> tuple[int, int]:
    return (finding.severity is Severity.ERROR, CERTAINTY_ORDER[finding.certainty])


def fixable_roots(paths: Sequence[str], base: Path) -> tuple[Path, ...]:
    """The folders in which fixes may write: those given by the user, and the working directory."""
    named = [Path(path) if is_folder(Path(path)) else Path(path).parent for path in paths]
    return tuple(dict.fromkeys(resolve_path(folder) for folder in (base, *named)))


def hazard_names(hazard: Hazard) -> tuple[str, ...]:
    """All names by which a project may have silenced a hazard: its current name and those of earlier releases."""
    return (hazard.name, *hazard.formerly)


def is_allowed(finding: Finding, files: Mapping[str, SourceFile], names: Sequence[str]) -> bool:
    """Whether a comment on one of the finding's lines, or on a comment line directly above, allows it."""
    return any(
        span.path in files and is_hazard_allowed_at(names, files[span.path], span.line) for span in finding.spans[:1]
    )


def is_hazard_allowed_at(names: Sequence[str], source: SourceFile, line: int) -> bool:
    """Whether a comment allows the hazard with these names at a line (from 1) of the file."""
    if b"gonogo:" not in source.data:
        return False
    lines = [source.line_bytes(line)]
    above = line - 1
    while above >= 1 and source.line_bytes(above).rstrip(b"\r\n").endswith(b"\\"):
        above -= 1  # a command that is continued over several lines can't contain a comment
    while above >= 1 and _COMMENT_LINE_PATTERN.match(source.line_bytes(above)):
        lines.append(source.line_bytes(above))
        above -= 1
    return any(_comment_allows(text, names) for text in lines)


def _comment_allows(text: bytes, names: Sequence[str]) -> bool:
    found = _ALLOW_COMMENT_PATTERN.search(text)
    patterns = found.group(1).decode("ascii", "replace").split(",") if found else []
    return matches_any(names, [pattern.strip() for pattern in patterns])
