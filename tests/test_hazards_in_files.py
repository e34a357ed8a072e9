"""Every hazard against its small projects: the folders ``tests/hazards/<name>/{bad,good,fixed}_<what>/``, by glob.

In a bad project the hazard is found; ``bad_possible…``, ``bad_warning…`` and ``bad_note…`` say by their name how it is
said. In a good one, which looks alike, it is not found. A fix is proven: carried out on ``bad_x`` it gives ``fixed_x``
(which holds the files that change), and nothing of the hazard is found then.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from test_hazards import FIXTURES, HAZARDS, assert_readable

from gonogo.check.findings import check
from gonogo.check.fixes import apply, planned
from gonogo.check.settings import CheckSettings
from gonogo.finding import Applicability, Certainty, Finding, Severity
from gonogo.hazards.hazard import Hazard

PROJECTS = sorted(path for path in FIXTURES.glob("*/*_*") if path.is_dir())
BAD = [path for path in PROJECTS if path.name.startswith("bad_")]
GOOD = [path for path in PROJECTS if path.name.startswith("good_")]
FIXED = [path for path in PROJECTS if path.name.startswith("fixed_")]
HANDLERS = ("in_config", "in_launch", "in_script", "in_environment")


def case(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project, with the working directory in it."""
    copy = tmp_path / "project"
    shutil.copytree(request.param, copy)
    monkeypatch.chdir(copy)
    return request.param


@pytest.fixture(autouse=True)
def faults_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_DEBUG", "1")


def findings_here() -> tuple[Finding, ...]:
    machine = Path("environment.json")  # what `gonogo env --format json` has told of the machine that will train
    settings = CheckSettings(environment=machine) if machine.is_file() else None
    return check(["."], settings=settings, use_installed=False).report.findings


@pytest.mark.parametrize("project", BAD, ids=case, indirect=True)
def test_a_bad_project_is_found(project: Path) -> None:
    name = project.parent.name
    mine = [finding for finding in findings_here() if finding.hazard == name]
    assert mine, [finding.hazard for finding in findings_here()]
    finding = mine[0]
    if project.name.startswith("bad_possible"):
        assert finding.certainty is Certainty.POSSIBLE
    elif project.name.startswith("bad_warning"):
        assert finding.severity is Severity.WARNING
    elif project.name.startswith("bad_note"):
        assert finding.severity is Severity.NOTE
    else:
        assert finding.severity is Severity.ERROR
        assert finding.certainty in (Certainty.CERTAIN, Certainty.LIKELY)
    assert finding.cure
    assert finding.sources == HAZARDS[name].sources
    assert finding.spans
    assert (project / finding.spans[0].path).is_file()
    primary = finding.spans[0]  # which place it has to be stands in expected.txt; here, that there is one
    lines = (project / primary.path).read_text(encoding="utf-8", errors="replace").split("\n")
    assert primary.column <= len(lines[primary.line - 1]) + 1
    for one in mine:
        assert_readable(one)


@pytest.mark.parametrize("project", GOOD, ids=case, indirect=True)
def test_a_good_project_is_left_alone(project: Path) -> None:
    assert project.parent.name not in [finding.hazard for finding in findings_here()]


@pytest.mark.parametrize("project", BAD, ids=case, indirect=True)
def test_a_fix_is_proven(project: Path) -> None:
    name = project.parent.name
    mine = [finding for finding in findings_here() if finding.hazard == name]
    fixable = [
        finding
        for finding in mine
        if any(fix.edits and fix.applicability is not Applicability.MANUAL for fix in finding.fixes)
    ]
    expected = project.with_name(project.name.replace("bad_", "fixed_", 1))
    assert expected.is_dir() == bool(fixable), "a fix needs its fixed_ folder, and the other way round"
    if not fixable:
        return
    for finding in fixable:
        assert all(fix.diff for fix in finding.fixes if fix.edits)
    plan = planned(fixable, unsafe=True)
    assert not plan.not_applied
    apply(plan, [Path.cwd()])
    for path in sorted(path for path in expected.rglob("*") if path.is_file()):
        assert Path(path.relative_to(expected)).read_text() == path.read_text(), path.name
    changed = [path for path in project.rglob("*") if path.is_file()]
    for path in changed:
        inside = path.relative_to(project)
        if not (expected / inside).exists():
            assert inside.read_bytes() == path.read_bytes(), f"{inside} was changed too"
    left = [finding for finding in findings_here() if finding.hazard == name]
    assert not any(fix.edits for finding in left for fix in finding.fixes)
    assert len(left) == len(mine) - len(fixable)


def test_every_fixed_project_has_a_bad_one() -> None:
    assert {path.name.replace("fixed_", "bad_", 1) for path in FIXED} <= {path.name for path in BAD}


@pytest.mark.parametrize("hazard", HAZARDS.values(), ids=lambda hazard: hazard.name)
def test_a_hazard_that_looks_at_files_has_projects(hazard: Hazard) -> None:
    looks = any(getattr(type(hazard), handler) is not getattr(Hazard, handler) for handler in HANDLERS)
    folder = FIXTURES / hazard.name
    assert any(path.parent == folder for path in BAD) == looks
    assert any(path.parent == folder for path in GOOD) == looks
