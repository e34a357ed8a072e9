"""The reference for a rehearsal: what the project's files declare on packages and Python, and what was generated."""

from __future__ import annotations

import configparser
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from gonogo.evidence.prepared import PreparedStandIns
from gonogo.finding.remedy import Reason
from gonogo.prepare.environment_mismatch import Requirements, declared_requirements, display_path, project_files
from gonogo.rehearse.limits.synthetic_data_failures import prepared_table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PYTHON_REQUIRES_PATTERN = re.compile(r"""python_requires\s*=\s*['"]([^'"]+)['"]""")
_POETRY_VERSION_PATTERN = re.compile(r"^[~^]\s*(\d+)(?:\.(\d+))?")


@dataclass(frozen=True)
class ProjectWorld:
    """The environment that a project declares."""

    folder: Path
    """The working directory of the launch."""
    cwd: Path
    """The folder in which the launch runs the program."""
    requirements: Requirements = field(default_factory=Requirements)
    python: tuple[str, str] | None = None
    """The Python versions that it allows, and the file that states them."""
    prepared: PreparedStandIns = field(default_factory=PreparedStandIns)
    is_given: bool = False
    """Whether the packages already come from a file, by ``--environment`` or from ``gonogo prepare``."""
    gpus_assumed: Reason | None = None
    """That the number of GPUs is gonogo's assumption, if it is."""

    @classmethod
    def from_files(
        cls, folder: Path, cwd: Path, environment: Path | None = None, *, is_complete: bool = False
    ) -> ProjectWorld:
        """Read the files of a project, skipping unreadable ones. ``cwd`` is the folder in which the program runs."""
        requirements = declared_requirements(cwd, environment)
        table = prepared_table(folder)
        return cls(
            folder, cwd, requirements, required_python(cwd, requirements), table, is_complete or environment is not None
        )

    def allows_python(self, version: str) -> bool:
        """Whether the project allows that Python version; True if it states none."""
        if self.python is None:
            return True
        try:
            return SpecifierSet(self.python[0]).contains(Version(version), prereleases=True)
        except (InvalidSpecifier, InvalidVersion):
            return True


def python_specifier(folder: Path, environment: Path | None = None) -> str:
    """Which versions of Python the files of a project allow; empty where they say nothing."""
    found = required_python(folder, declared_requirements(folder, environment))
    return found[0] if found is not None else ""


def required_python(folder: Path, requirements: Requirements) -> tuple[str, str] | None:
    """Which Python a project's files allow, as a specifier, and the file that says so; None where none does."""
    for path in project_files(folder):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found = {
            "pyproject.toml": _python_from_pyproject,
            "setup.cfg": _python_from_setup_cfg,
            "setup.py": _python_from_setup_py,
        }.get(path.name)
        wanted = found(text) if found is not None else ""
        if wanted:
            return wanted, display_path(path)
    specifier, file = requirements.get("python", (SpecifierSet(), ""))
    return (str(specifier), file) if str(specifier) else None


def _python_from_pyproject(text: str) -> str:
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return ""
    project, tool = table.get("project"), table.get("tool")
    wanted = project.get("requires-python") if isinstance(project, dict) else None
    if not wanted and isinstance(tool, dict) and isinstance(poetry := tool.get("poetry"), dict):
        dependencies = poetry.get("dependencies")
        wanted = _caret_to_specifier(str(dependencies.get("python", ""))) if isinstance(dependencies, dict) else None
    return wanted if isinstance(wanted, str) else ""


def _caret_to_specifier(text: str) -> str:
    """The specifier of Poetry's ``^3.12`` (below the next major release) or ``~3.12`` (only that minor release)."""
    found = _POETRY_VERSION_PATTERN.match(text)
    if found is None:
        return "" if text == "*" else text
    major, minor = int(found[1]), found[2]
    if text.startswith("~") and minor is not None:
        return f"=={major}.{minor}.*"
    return f">={major}.{minor or 0},<{major + 1}"


def _python_from_setup_cfg(text: str) -> str:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
        return parser.get("options", "python_requires", fallback="").strip()
    except configparser.Error:
        return ""


def _python_from_setup_py(text: str) -> str:
    found = _PYTHON_REQUIRES_PATTERN.search(text)
    return found[1] if found is not None else ""
