"""The command ``gonogo check``, its options, and its messages about changed files."""

from __future__ import annotations

import gc
import os
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import Format, Lang, Open, Output, split_at_dashes
from gonogo.evidence.paths import is_folder
from gonogo.finding import UserError, translated
from gonogo.finding.call import Invocation
from gonogo.finding.language import choose_language

if TYPE_CHECKING:
    from gonogo.check.findings import CheckResult
    from gonogo.check.settings import CheckSettings

_MAX_FIX_PASSES = 10
"""Maximum number of rounds of fixes, since a fix may make another possible; more indicate a bug in gonogo."""


def check(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATHS]... [-- COMMAND...]", help="Files and folders; after --, the launch command."),
    ] = None,
    environment: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Package versions of the run: requirements, pip freeze, a lock file, JSON, or `gonogo env` output.",
        ),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Check only these hazards (glob). Repeatable.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Skip these hazards (glob). Repeatable.")
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="possible|likely|certain", help="Exit 1 on errors of at least this certainty. Default: certain."
        ),
    ] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show what --fix would change, without changing it.")] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Apply the safe fixes, then report what remains.")] = False,
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="With --fix or --diff: also fixes that change the run's behaviour.")
    ] = False,
    statistics: Annotated[bool, typer.Option("--statistics", help="Count the findings per hazard.")] = False,
    allow_no_files: Annotated[
        bool,
        typer.Option(
            "--allow-no-files", help="Ignore PATHS of other file types instead of failing (for commit hooks)."
        ),
    ] = False,
    format_: Format = "text",
    output: Output = None,
    open_: Open = False,
    lang: Lang = None,
) -> None:
    """Find, in the files of a run, what will stop it; and fix it. No torch, no GPU: it reads.

    For instance: gonogo check -- bash launch.sh    or: gonogo check --fix my_project/

    A command or launch script is followed to its configs, scripts and versions. Findings are silenced by
    `# gonogo: allow NAME` in place, or by [tool.gonogo] in pyproject.toml.

    启动之前检查命令、配置、脚本和版本，并修复问题。
    """
    # Everything that is read is kept: garbage collection would take a fifth of the time and find none.
    gc.disable()
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.report import known_format
        from gonogo.report.output import check_writable, publish, publish_text

        known_format(format_)
        check_writable(output)
        paths, command = split_at_dashes(arguments or [])
        settings = _settings(paths, environment, select, ignore, fail_on)
        from gonogo.check.findings import check as check_files
        from gonogo.cli.check_output import (
            ReadOnlyFiles,
            fix_files,
            report_hidden_unsafe_fixes,
            show_diff,
            write_statistics,
        )
        from gonogo.cli.progress_bars import check_progress

        if fix and diff:
            raise UserError(translated("--fix changes files, --diff only shows the changes: use one of them"))
        with check_progress(language) as on_progress:
            checked = check_files(
                paths, command, settings=settings, allow_no_files=allow_no_files, on_progress=on_progress
            )
        if diff:
            publish_text(lambda stream: show_diff(stream, checked, unsafe_fixes), output)
            if not unsafe_fixes:
                report_hidden_unsafe_fixes(sys.stderr, checked, language)
            raise SystemExit(checked.exit_status)
        if fix:
            read_only = ReadOnlyFiles(language, sys.stderr)
            for _ in range(_MAX_FIX_PASSES):
                if not fix_files(checked, paths, unsafe_fixes, language, sys.stderr, read_only):
                    break
                checked = check_files(paths, command, settings=settings, allow_no_files=allow_no_files)
        if statistics:
            publish_text(lambda stream: write_statistics(stream, checked, format_, language), output)
        else:
            from gonogo.report.answer.command_placeholders import with_invocation

            publish(
                with_invocation(checked.report, _invocation(checked, paths, command)), format_, output, language, open_
            )
        if allow_no_files and not checked.gathered.runs:
            raise SystemExit(0)
        raise SystemExit(checked.exit_status)


def _invocation(checked: CheckResult, paths: list[str], command: list[str]) -> Invocation:
    """How gonogo was called; without a command, the only shell script among the files that launches a run."""
    launches = {run.launch.source.path for run in checked.gathered.runs if run.launch is not None}
    if not command and len(launches) == 1 and (script := launches.pop()).endswith(".sh"):
        return Invocation(("bash", script), files=tuple(paths))
    return Invocation(tuple(command), files=tuple(paths))


def _settings(
    paths: list[str], environment: Path | None, select: list[str] | None, ignore: list[str] | None, fail_on: str | None
) -> CheckSettings:
    """The project's settings, overridden by the options."""
    from msgspec.structs import replace

    from gonogo.check.settings import read_settings
    from gonogo.finding import Certainty
    from gonogo.hazards.index import all_hazards

    first = Path(paths[0]) if paths else Path.cwd()
    settings = read_settings(first if is_folder(first) else first.parent)
    if fail_on is not None and fail_on not in [one.value for one in Certainty]:
        raise UserError(
            translated("--fail-on {value}: must be certain, likely or possible").format(value=repr(fail_on))
        )
    for option, patterns in (("--select", select), ("--ignore", ignore)):
        for pattern in patterns or ():
            if not any(fnmatchcase(hazard.name, pattern) for hazard in all_hazards()):
                raise UserError(
                    translated("{option} {value}: no hazard with this name; gonogo hazards lists them").format(
                        option=option, value=repr(pattern)
                    )
                )
    return replace(
        settings,
        select=tuple(select) if select else settings.select,
        ignore=(*settings.ignore, *(ignore or ())),
        fail_on=Certainty(fail_on) if fail_on else settings.fail_on,
        environment=environment or settings.environment,
    )
