"""No false alarm: healthy projects, and what published packages hold themselves, are left alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from gonogo.check.findings import CheckResult, check
from gonogo.evidence.files import kind_of
from gonogo.finding import Certainty, Finding, Severity, Verdict

HEALTHY = Path(__file__).parent / "healthy"
PROJECTS = sorted(path for path in HEALTHY.iterdir() if path.is_dir())
PACKAGES = ("deepspeed", "transformers", "accelerate", "peft")
DATA = (".json", ".yaml", ".yml", ".sh")
# Scripts that train, launch or configure; the packages' other modules are libraries.
SCRIPTS = (
    *("accelerate/test_utils/scripts/**/*.py", "accelerate/commands/*.py", "accelerate/utils/deepspeed.py"),
    *("deepspeed/autotuning/*.py", "deepspeed/launcher/*.py", "deepspeed/comm/config.py"),
    *("peft/helpers.py", "peft/utils/*.py", "transformers/integrations/deepspeed.py", "transformers/train*.py"),
)


@pytest.fixture(autouse=True)
def faults_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_DEBUG", "1")


def told(findings: tuple[Finding, ...]) -> list[str]:
    """A line a finding, for the message of a failed test."""
    return [f"{one.hazard} ({one.severity.value}, {one.certainty.value}): {one.cause.en}" for one in findings]


def checked_here(*paths: str) -> CheckResult:
    return check(paths or ["."], use_installed=False)


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.name)
def test_a_healthy_project_gets_remarks_at_most(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    checked = checked_here()
    assert told(tuple(one for one in checked.report.findings if one.severity is not Severity.NOTE)) == []
    assert checked.report.verdict is not Verdict.NO_GO
    assert checked.exit_status != Verdict.NO_GO.exit_status
    assert checked.report.covered


@pytest.mark.parametrize(
    "script", sorted(path for path in HEALTHY.rglob("*.sh")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_a_healthy_launch_script_by_itself(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(script.parent)
    checked = check((), ["bash", script.name], use_installed=False)
    assert told(tuple(one for one in checked.report.findings if one.severity is not Severity.NOTE)) == []


def test_there_are_enough_of_them() -> None:
    files = [path for path in HEALTHY.rglob("*") if path.is_file() and kind_of(path) is not None]
    assert len(files) >= 100
    assert len(PROJECTS) >= 25


def published(package: str) -> list[Path]:
    """What an installed package holds of configs, launch scripts and training scripts."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed")
    folder = Path(found.origin).parent
    data = [path for suffix in DATA for path in folder.rglob(f"*{suffix}")]
    scripts = [path for pattern in SCRIPTS if pattern.startswith(package) for path in folder.parent.glob(pattern)]
    return sorted({*data, *scripts})


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_package_publishes(package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    files = [str(path) for path in published(package)]
    findings = check(files).report.findings  # with the versions that are installed, the packages' own
    errors = (Severity.ERROR,)
    assert told(tuple(one for one in findings if one.severity in errors and one.certainty is Certainty.CERTAIN)) == []
