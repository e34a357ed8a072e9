"""What every hazard finds in each of its cases, as text: ``tests/hazards/<name>/expected.txt``.

``make snapshots`` writes the files anew; what has changed is to be read, line by line, before it is committed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from log_cases import LogCase, log_cases

from gonogo.check.findings import check
from gonogo.check.settings import CheckSettings
from gonogo.evidence.guarded.guarded_run import GuardedRun
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Finding, Span, Text
from gonogo.guard.findings import findings_in_guarded_run
from gonogo.judge.rehearsal_findings import findings_in_rehearsal

FIXTURES = Path(__file__).parent / "hazards"
_SCRATCH = "gonogo-case-"
Case = Path | LogCase


def cases_of(folder: Path) -> list[Case]:
    """A hazard's cases by name: projects, which are folders; records; guarded runs; logs."""
    paths = [
        path
        for path in folder.iterdir()
        if path.name.startswith(("bad", "good"))
        and (path.is_dir() or path.name.endswith((".record.json", ".guard.json")))
    ]
    return sorted([*paths, *log_cases(folder)], key=name_of)


def name_of(case: Case) -> str:
    """The case's name: of a file with its ending."""
    return f"{case.name}.log" if isinstance(case, LogCase) else case.name


def findings_in_project(folder: Path = Path()) -> tuple[Finding, ...]:
    """What ``check`` finds in the working directory, which is (a copy of) a case's folder."""
    machine = folder / "environment.json"  # what `gonogo env --format json` has told of the machine that will train
    settings = CheckSettings(environment=machine) if machine.is_file() else None
    return check(["."], settings=settings, use_installed=False).report.findings


def findings_in_case(case: Case) -> tuple[Finding, ...]:
    """All that is found in a case, best first."""
    if isinstance(case, LogCase):
        return case.findings()
    path = case
    if path.is_dir():
        before = Path.cwd()
        with tempfile.TemporaryDirectory(prefix=_SCRATCH) as scratch:
            copy = Path(scratch) / "project"
            shutil.copytree(path, copy)
            os.chdir(copy)
            try:
                return findings_in_project()
            finally:
                os.chdir(before)
    if path.name.endswith(".record.json"):
        return findings_in_rehearsal(msgspec.json.decode(path.read_bytes(), type=RehearsalRecord))
    return findings_in_guarded_run(msgspec.json.decode(path.read_bytes(), type=GuardedRun))


def snapshot_of(findings_by_case: dict[str, tuple[Finding, ...]]) -> str:
    """All findings of all cases of one hazard, by the cases' names."""
    parts = []
    for name, findings in findings_by_case.items():
        lines = [f"=== {name}"]
        for finding in findings:
            lines += _lines_of(finding)
        parts.append("\n".join(lines if findings else [*lines, "nothing is found"]))
    text = re.sub(rf"/[^\s()\"]*{_SCRATCH}\w+/project", "PROJECT", "\n\n".join(parts))
    return re.sub(rf"/[^\s()\"]*{_SCRATCH}\w+/", "", text) + "\n"


def _lines_of(finding: Finding) -> Iterator[str]:
    about = {"ranks": ", ".join(map(str, finding.ranks)), "module": finding.module, "parameter": finding.parameter}
    told = "".join(f", {name} {value}" for name, value in about.items() if value)
    yield f"{finding.severity.value}[{finding.hazard}] {finding.certainty.value}{told}"
    yield from _text("title", finding.title)
    for span in finding.spans:
        yield f"  at {_place(span)}"
        if span.label is not None:
            yield from _text("  label", span.label)
    yield from _text("cause", finding.cause)
    for cure in finding.cure:
        yield from _text("cure", cure)
    for confirm in finding.remaining_confirmations:
        yield from _text("confirm", confirm)
    for fix in finding.fixes:
        yield from _text(f"fix ({fix.applicability.value})", fix.title)


def _place(span: Span) -> str:
    marked = span.text.strip()
    if span.end_line == span.line and span.end_column:
        marked = span.text[span.column - 1 : span.end_column - 1]
    return f"{span.path}:{span.line}:{span.column} {marked[:100]}".rstrip()


def _text(what: str, text: Text) -> Iterator[str]:
    yield f"  {what}: {text.en}"
    if text.zh != text.en:
        yield f"  {' ' * len(what)}  {text.zh}"


def write(names: list[str]) -> None:
    """Write the ``expected.txt`` of those hazards, or of all, anew, and name those that have changed."""
    for folder in sorted(path for path in FIXTURES.iterdir() if path.name in names or (path.is_dir() and not names)):
        expected = folder / "expected.txt"
        text = snapshot_of({name_of(case): findings_in_case(case) for case in cases_of(folder)})
        if not expected.exists() or expected.read_text(encoding="utf-8") != text:
            expected.write_text(text, encoding="utf-8")
            print(expected.relative_to(FIXTURES.parents[1]))


if __name__ == "__main__":
    write(sys.argv[1:])
