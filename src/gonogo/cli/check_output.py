"""Output of ``gonogo check`` other than its report: progress, diffs, changed files, statistics."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from gonogo.check.findings import CheckResult, fixable_roots
from gonogo.check.fixes import UnappliedFix, apply_plan, diff_of_plan, plan_fixes
from gonogo.finding import Finding, Text, translated

if TYPE_CHECKING:
    pass

_FILE_FIXED = translated("{path}: fixed {hazards}")
_UNSAFE_FIXES_HIDDEN = translated(
    "{count} fixes not shown because they change the run's behaviour (--unsafe-fixes shows them)"
)
_READ_ONLY = translated("{path} is read-only. Change it anyway? [y/N] ")
_NOT_FIXED = translated("{path}: {hazard} not fixed: {why}")


def show_diff(stream: TextIO, checked: CheckResult, unsafe: bool) -> None:
    """Write the diff of all changes that one round of ``--fix`` would make."""
    stream.write(diff_of_plan(plan_fixes(checked.report.findings, unsafe=unsafe)))


def report_hidden_unsafe_fixes(stream: TextIO, checked: CheckResult, language: str) -> None:
    """Say how many unsafe fixes a diff leaves out, if any."""
    all_, safe = (len(plan_fixes(checked.report.findings, unsafe=unsafe).fixes) for unsafe in (True, False))
    if all_ > safe:
        _write_line(stream, _UNSAFE_FIXES_HIDDEN.format(count=all_ - safe), language)


class ReadOnlyFiles:
    """Asks once about each read-only file if there is a terminal; otherwise such files are never changed."""

    def __init__(self, language: str, stream: TextIO, answers: TextIO | None = None) -> None:
        self._language = language
        self._stream = stream
        self._answers = answers or sys.stdin
        self._known: dict[str, bool] = {}
        self.said: set[UnappliedFix] = set()
        """Fixes already reported as not applied, since files are checked again after each round of fixes."""

    def may_replace(self, path: str) -> bool:
        """Whether the user allows this read-only file to be replaced."""
        if path not in self._known:
            self._known[path] = self._ask_to_change_read_only(path)
        return self._known[path]

    def _ask_to_change_read_only(self, path: str) -> bool:
        if not (self._stream.isatty() and self._answers.isatty()):
            return False
        self._stream.write(_READ_ONLY.format(path=path).in_language(self._language))
        self._stream.flush()
        return self._answers.readline().strip().lower() in ("y", "yes")


def fix_files(
    checked: CheckResult,
    paths: Sequence[str],
    unsafe: bool,
    language: str,
    stream: TextIO,
    read_only: ReadOnlyFiles | None = None,
) -> bool:
    """Apply the fixes, and write what was changed and what was not to ``stream``. True if any file was changed."""
    plan = plan_fixes(checked.report.findings, unsafe=unsafe)
    if not plan.fixes and not plan.not_applied:
        return False
    read_only = read_only or ReadOnlyFiles(language, stream)
    written, refused = apply_plan(plan, fixable_roots(paths, checked.gathered.files.base), read_only.may_replace)
    for path in written:
        names = {finding.hazard for finding, fix in plan.fixes if any(edit.path == path for edit in fix.edits)}
        _write_line(stream, _FILE_FIXED.format(path=path, hazards=", ".join(sorted(names))), language)
    for one in (*plan.not_applied, *refused):
        if one not in read_only.said:
            read_only.said.add(one)
            _write_not_applied(stream, one, language)
    return bool(written)


def _write_not_applied(stream: TextIO, not_applied: UnappliedFix, language: str) -> None:
    _write_line(
        stream, _NOT_FIXED.format(path=not_applied.path, hazard=not_applied.hazard, why=not_applied.why), language
    )


def _write_line(stream: TextIO, text: Text, language: str) -> None:
    stream.write(text.in_language(language) + "\n")


def write_statistics(stream: TextIO, checked: CheckResult, format_name: str, language: str) -> None:
    """Write how often each hazard was found, most frequent first, and whether its findings can be fixed."""
    findings = checked.report.findings
    counts = Counter(finding.hazard for finding in findings)
    fixable = Counter(finding.hazard for finding in findings if any(fix.edits for fix in finding.fixes))
    titles = {finding.hazard: finding.title.in_language(language) for finding in findings}
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if format_name == "json":
        table = [
            {"hazard": name, "count": count, "fixable": fixable[name], "title": titles[name]} for name, count in rows
        ]
        document = {"schema": "gonogo.statistics/1", "verdict": checked.report.verdict.value, "statistics": table}
        stream.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
        return
    width = max((len(name) for name in counts), default=0)
    for name, count in rows:
        mark = "*" if fixable[name] else " "
        stream.write(f"{count:>5}  [{mark}] {name:<{width}}  {titles[name]}\n")
    stream.write(
        _statistics_summary(findings, len(checked.gathered.runs), checked.seconds).in_language(language) + "\n"
    )


def _statistics_summary(findings: Sequence[Finding], runs: int, seconds: float) -> Text:
    fixable = sum(any(fix.edits for fix in finding.fixes) for finding in findings)
    return translated(
        "{findings} findings in {runs} runs and standalone files, {fixable} fixable [*], {seconds:.2f} s"
    ).format(findings=len(findings), runs=runs, fixable=fixable, seconds=seconds)
