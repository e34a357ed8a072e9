"""The files of a run for commands that see more than files: what check finds in them, at no risk to the command.

Whatever goes wrong in reading files is told as not covered, and costs the rehearsal, the diagnosis or the run nothing.
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
from gonogo.finding import Finding, Skipped, Text, translated
from gonogo.finding.errors import UserError

if TYPE_CHECKING:  # what reads files is loaded where they are read
    from gonogo.check.findings import Checked
    from gonogo.evidence.run import Run

_RUN_FILES = translated("the run's files")
_INTERNAL_ERROR = translated(
    "internal error in gonogo ({what}); reproduce it with gonogo check -- COMMAND and please report it"
)


class StaticFindings(msgspec.Struct, frozen=True):
    """What the files of a run show, and what of them could not be read. Empty where they were not looked at."""

    findings: tuple[Finding, ...] = ()
    covered: tuple[Text, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    sources: Mapping[str, SourceFile] = {}
    """The files that were read, by the path that reports show."""
    packages: frozenset[str] = frozenset()
    """The packages (canonical names) that files, or this Python, tell of."""
    pinned: Mapping[str, str] = {}
    """The versions that files ask for: package (canonical name) to specifier."""
    runs: tuple[Run, ...] = ()
    base: str = ""
    """The folder that paths are shown from."""


NO_STATIC_FINDINGS = StaticFindings()


def check_project(
    command: Sequence[str] = (),
    paths: Sequence[str] = (),
    *,
    environment: Path | None = None,
    use_installed: bool = True,
    file_overrides: Mapping[str, str] | None = None,
) -> StaticFindings:
    """What check finds in a command's files, or in a folder's; raises nothing.

    The settings of the folder count, as for ``gonogo check``. ``environment`` is a file of versions; ``use_installed``
    and ``file_overrides`` as for :func:`gonogo.check.findings.check`.
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
    return files_of(checked, base)


def files_of(checked: Checked, base: str) -> StaticFindings:
    """The files of a check that was started in the folder ``base``."""
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
    """What is kept of a check beside a run's records."""

    findings: tuple[Finding, ...]
    packages: frozenset[str]
    base: str


def dump(files: StaticFindings) -> bytes:
    """What was found, as JSON, for a report that is made later: :func:`load` reads it."""
    return msgspec.json.encode(_StoredFindings(files.findings, files.packages, files.base))


def load(path: Path) -> StaticFindings:
    """What was kept at a path, with the files that findings name as they are now; empty where nothing was kept."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=_StoredFindings)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return NO_STATIC_FINDINGS
    sources = {}
    for name in {span.path for finding in kept.findings for span in finding.spans}:
        with contextlib.suppress(UserError):
            sources[name] = SourceFile.read(Path(kept.base, name))
    return StaticFindings(findings=kept.findings, sources=sources, packages=kept.packages, base=kept.base)
