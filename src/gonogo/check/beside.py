"""The files of a run for commands that see more than files: what check finds in them, at no risk to the command.

Whatever goes wrong in reading files is told as not covered, and costs the rehearsal, the diagnosis or the run nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gonogo.evidence.document.source_file import SourceFile
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Skipped, Text
from gonogo.finding.errors import UserError

_FILES = Text("the run's files", "运行的文件")
_FAULT = Text(
    "a fault of gonogo itself ({what}): gonogo check -- COMMAND shows it; please report it",
    "gonogo 自身的故障（{what}）：gonogo check -- 命令 可重现；请报告",
)


class FilesRead(msgspec.Struct, frozen=True):
    """What the files of a run show, and what of them could not be read. Empty where they were not looked at."""

    findings: tuple[Finding, ...] = ()
    covered: tuple[Text, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    sources: Mapping[str, SourceFile] = {}
    """The files that were read, by the path that reports show."""
    packages: frozenset[str] = frozenset()
    """The packages (canonical names) that files, or this Python, tell of."""
    runs: tuple[Run, ...] = ()
    base: str = ""
    """The folder that paths are shown from."""


NO_FILES = FilesRead()


def read_beside(
    command: Sequence[str] = (),
    paths: Sequence[str] = (),
    *,
    environment: Path | None = None,
    use_installed: bool = True,
    laid_over: Mapping[str, str] | None = None,
) -> FilesRead:
    """What check finds in a command's files, or in a folder's; raises nothing.

    The settings of the folder count, as for ``gonogo check``. ``environment`` is a file of versions; ``use_installed``
    and ``laid_over`` as for :func:`gonogo.check.findings.check`.
    """
    base = str(Path.cwd())
    try:
        from gonogo.check.findings import check
        from gonogo.check.settings import read_settings

        settings = read_settings(Path(paths[0]) if paths and Path(paths[0]).is_dir() else Path.cwd())
        if environment is not None:
            settings = replace(settings, environment=environment)
        checked = check(paths, command, settings=settings, use_installed=use_installed, laid_over=laid_over)
    except UserError as error:
        return FilesRead(skipped=(Skipped(_FILES, error.text),), base=base)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"[:200]
        return FilesRead(skipped=(Skipped(_FILES, _FAULT.format(what=what)),), base=base)
    gathered = checked.gathered
    return FilesRead(
        findings=checked.report.findings,
        covered=checked.report.covered,
        skipped=checked.report.skipped,
        sources=gathered.files.sources,
        packages=frozenset(name for run in gathered.runs for name in run.environment.packages),
        runs=gathered.runs,
        base=base,
    )
