"""``gonogo check`` as a part of rehearse, diagnose and guard, which must not fail because of it.

Any problem in reading files is reported as not covered, and doesn't affect the rehearsal, the diagnosis or the run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gonogo.evidence.paths import is_folder
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Finding, Skipped, Text, UserError, translated

if TYPE_CHECKING:  # imported only when files are actually read
    from gonogo.check.findings import CheckResult
    from gonogo.evidence.run import Run

_RUN_FILES = translated("the run's files")
_INTERNAL_ERROR = translated(
    "internal error in gonogo ({what}); reproduce it with gonogo check -- COMMAND and please report it"
)


class StaticFindings(msgspec.Struct, frozen=True):
    """The findings in a run's files, and the files that could not be read. Empty if nothing was checked."""

    findings: tuple[Finding, ...] = ()
    covered: tuple[Text, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    sources: Mapping[str, SourceFile] = {}
    """The files that were read, by the path shown in reports."""
    packages: frozenset[str] = frozenset()
    """The packages (canonical names) that files mention or this Python has."""
    pinned: Mapping[str, str] = {}
    """Version specifiers stated in files, by canonical package name."""
    runs: tuple[Run, ...] = ()
    base: str = ""
    """The folder that paths in reports are relative to."""


NO_STATIC_FINDINGS = StaticFindings()


def check_project(
    command: Sequence[str] = (),
    paths: Sequence[str] = (),
    *,
    environment: Path | None = None,
    use_installed: bool = True,
    file_overrides: Mapping[str, str] | None = None,
) -> StaticFindings:
    """Run ``check`` on a command's files, or a folder's. Never raises.

    The settings of the folder apply, as for ``gonogo check``. ``environment`` is a file of versions;
    ``use_installed`` and ``file_overrides`` are as for :func:`gonogo.check.findings.check`.
    """
    base = str(Path.cwd())
    try:
        from gonogo.check.findings import check
        from gonogo.check.settings import read_settings

        settings = read_settings(Path(paths[0]) if paths and is_folder(Path(paths[0])) else Path.cwd())
        if environment is not None:
            settings = replace(settings, environment=environment)
        checked = check(paths, command, settings=settings, use_installed=use_installed, laid_over=file_overrides)
    except UserError as error:
        return StaticFindings(skipped=(Skipped(_RUN_FILES, error.text),), base=base)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"[:200]
        return StaticFindings(skipped=(Skipped(_RUN_FILES, _INTERNAL_ERROR.format(what=what)),), base=base)
    return static_findings_of(checked, base)


def static_findings_of(checked: CheckResult, base: str) -> StaticFindings:
    """What a check, started in the folder ``base``, found in a run's files."""
    gathered = checked.gathered
    packages = [package for run in gathered.runs for package in run.environment.packages.values()]
    return StaticFindings(
        findings=checked.report.findings,
        covered=checked.report.covered,
        skipped=checked.report.skipped,
        sources=gathered.files.sources,
        packages=frozenset(package.name for package in packages),
        pinned={package.name: package.specifier for package in packages if package.place is not None},
        runs=gathered.runs,
        base=base,
    )


class _StoredFindings(msgspec.Struct):
    """The part of a check's result that is stored with a run's records."""

    findings: tuple[Finding, ...]
    packages: frozenset[str]
    base: str


def dump_findings(files: StaticFindings) -> bytes:
    """The findings as JSON, to be stored for a later report; read by :func:`load_findings`."""
    return msgspec.json.encode(_StoredFindings(files.findings, files.packages, files.base))


def load_findings(path: Path) -> StaticFindings:
    """Stored findings, with the current contents of the files that they name; empty if nothing was stored."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=_StoredFindings)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return NO_STATIC_FINDINGS
    sources = {}
    for name in {span.path for finding in kept.findings for span in finding.spans}:
        with contextlib.suppress(UserError):
            sources[name] = SourceFile.read(Path(kept.base, name))
    return StaticFindings(findings=kept.findings, sources=sources, packages=kept.packages, base=kept.base)
