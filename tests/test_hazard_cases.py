"""Every hazard against its cases, ``tests/hazards/<name>/``: what is found is right, and is what ``expected.txt`` says.

In a bad case the hazard is found; ``bad_possible…``, ``bad_warning…`` and ``bad_note…`` say by their name how it is
said. In a good one, which looks alike, it is not. A fix is proven: carried out on ``bad_x`` it gives ``fixed_x`` (which
holds the files that change), and nothing of the hazard is found then. ``make snapshots`` writes ``expected.txt`` anew.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from log_cases import LogCase, log_cases
from snapshots import FIXTURES, Case, cases_of, findings_in_case, findings_in_project, name_of, snapshot_of
from test_hazards import HAZARDS, assert_readable

from gonogo.check.fixes import apply_plan, plan_fixes
from gonogo.evidence.log import sieve
from gonogo.finding import Applicability, Certainty, Finding, Severity
from gonogo.hazards.hazard import Hazard
from gonogo.judge.log_findings import CONFIDENT_CERTAINTIES

FOLDERS = sorted(path for path in FIXTURES.iterdir() if path.is_dir())
PROJECTS = sorted(path for path in FIXTURES.glob("*/*_*") if path.is_dir())
BAD = [path for path in PROJECTS if path.name.startswith("bad_")]
GOOD = [path for path in PROJECTS if path.name.startswith("good_")]
FIXED = [path for path in PROJECTS if path.name.startswith("fixed_")]
HANDLERS = ("in_config", "in_launch", "in_script", "in_environment")
# What stands before and after a log in the midst of a long one: more than is kept around a word.
FILLER = b"".join(b"{'loss': 1.%04d, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n" % n for n in range(400))
READ_WHOLE = 1 << 13


@pytest.fixture(autouse=True)
def faults_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_DEBUG", "1")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_findings_are_right_and_as_expected(folder: Path) -> None:
    findings = {name_of(case): (case, findings_in_case(case)) for case in cases_of(folder)}
    assert findings
    for case, found in findings.values():
        if isinstance(case, LogCase):
            check_log(case, found)
        elif case.is_dir():
            check_project(case, found)
    text = snapshot_of({name: found for name, (_, found) in findings.items()})
    assert text == (folder / "expected.txt").read_text(encoding="utf-8"), "see `make snapshots`"


def check_log(case: LogCase, findings: tuple[Finding, ...]) -> None:
    """A bad log's first cause is the hazard's; in a good log the hazard claims nothing with confidence.

    What was raised may stand above a possible cause, and so may another one that names something of the exception.
    """
    name = case.folder.name
    hazards = [finding.hazard for finding in findings]
    if not case.is_bad:
        assert name not in hazards[:1], case
        assert not [one for one in findings if one.hazard == name and one.certainty in CONFIDENT_CERTAINTIES], case
        return
    possible = case.name.startswith("bad_possible")
    assert name in causes(hazards, name)[: 2 if possible else 1], case
    assert hazards.count(name) == 1, case
    found = next(finding for finding in findings if finding.hazard == name)
    assert (found.certainty in CONFIDENT_CERTAINTIES) != possible, case
    assert found.spans[0].path.endswith(f"/{case.name}.log"), case
    assert found.cure, case
    assert found.sources == HAZARDS[name].sources, case
    for finding in findings:
        assert_readable(finding)


def causes(hazards: list[str], name: str) -> list[str]:
    """The hazards without the one that only tells what was raised, unless the case is about that one."""
    return [hazard for hazard in hazards if hazard == name or hazard != "program-raises"]


def check_project(project: Path, findings: tuple[Finding, ...]) -> None:
    name = project.parent.name
    mine = [finding for finding in findings if finding.hazard == name]
    if project in GOOD:
        assert not mine, project
        return
    assert mine, (project, [finding.hazard for finding in findings])
    finding = mine[0]
    if project.name.startswith("bad_possible"):
        assert finding.certainty is Certainty.POSSIBLE, project
    elif project.name.startswith("bad_warning"):
        assert finding.severity is Severity.WARNING, project
    elif project.name.startswith("bad_note"):
        assert finding.severity is Severity.NOTE, project
    else:
        assert finding.severity is Severity.ERROR, project
        assert finding.certainty in (Certainty.CERTAIN, Certainty.LIKELY), project
    assert finding.cure, project
    assert finding.sources == HAZARDS[name].sources, project
    primary = finding.spans[0]  # which place it has to be stands in expected.txt; here, that there is one
    lines = (project / primary.path).read_text(encoding="utf-8", errors="replace").split("\n")
    assert primary.column <= len(lines[primary.line - 1]) + 1, project
    for one in mine:
        assert_readable(one)
    assert fixed_of(project).is_dir() == bool(fixable(mine)), f"{project}: a fix needs its fixed_ folder, and it a fix"


def fixable(findings: list[Finding]) -> list[Finding]:
    return [
        finding
        for finding in findings
        if any(fix.edits and fix.applicability is not Applicability.MANUAL for fix in finding.fixes)
    ]


def fixed_of(project: Path) -> Path:
    return project.with_name(project.name.replace("bad_", "fixed_", 1))


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if log_cases(folder)], ids=lambda path: path.name)
def test_a_bad_log_is_explained_in_the_midst_of_a_long_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is too long to be read whole: only the text around the hazards' words is."""
    monkeypatch.setattr(sieve, "WHOLE", READ_WHOLE)
    for case in log_cases(folder):
        if case.is_bad:
            long = FILLER + case.text.rstrip(b"\n") + b"\n" + FILLER[: len(FILLER) // 2]
            found = causes([finding.hazard for finding in case.findings(long)], folder.name)
            assert folder.name in found[: 2 if case.name.startswith("bad_possible") else 1], case


def case_id(case: Case) -> str:
    return str(case) if isinstance(case, LogCase) else f"{case.parent.name}/{case.name}"


@pytest.mark.parametrize("project", [path for path in BAD if fixed_of(path).is_dir()], ids=case_id)
def test_a_fix_is_proven(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "project"
    shutil.copytree(project, copy)
    monkeypatch.chdir(copy)
    mine = [finding for finding in findings_in_project() if finding.hazard == project.parent.name]
    for finding in fixable(mine):
        assert all(fix.diff for fix in finding.fixes if fix.edits)
    plan = plan_fixes(fixable(mine), unsafe=True)
    assert not plan.not_applied
    apply_plan(plan, [Path.cwd()])
    expected = fixed_of(project)
    for path in sorted(path for path in expected.rglob("*") if path.is_file()):
        assert Path(path.relative_to(expected)).read_text() == path.read_text(), path.name
    for path in [path for path in project.rglob("*") if path.is_file()]:
        inside = path.relative_to(project)
        if not (expected / inside).exists():
            assert inside.read_bytes() == path.read_bytes(), f"{inside} was changed too"
    left = [finding for finding in findings_in_project() if finding.hazard == project.parent.name]
    assert not any(fix.edits for finding in left for fix in finding.fixes)
    assert len(left) == len(mine) - len(fixable(mine))


def test_every_fixed_project_has_a_bad_one() -> None:
    assert {path.name.replace("fixed_", "bad_", 1) for path in FIXED} <= {path.name for path in BAD}


def test_hazards_that_look_at_files_have_projects() -> None:
    look = {
        hazard.name
        for hazard in HAZARDS.values()
        if any(getattr(type(hazard), handler) is not getattr(Hazard, handler) for handler in HANDLERS)
    }
    assert {path.parent.name for path in BAD} == look
    assert {path.parent.name for path in GOOD} == look
