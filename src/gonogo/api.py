"""check, rehearse and diagnose as functions, for notebooks and programs; their reports display themselves."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from gonogo.finding import Report
from gonogo.finding.call import Invocation, machine_options
from gonogo.finding.language import choose_language
from gonogo.report.answer.command_placeholders import with_invocation

Words = str | Sequence[str]
"""A command, either as one string as typed or as a list of words."""


class DisplayedReport(Report, frozen=True):
    """A report that displays itself: as a page in a notebook, as text elsewhere, in the language of the locale."""

    def _repr_html_(self) -> str:
        from gonogo.report.html.frame import in_iframe

        return in_iframe(self.as_("html"))

    def __repr__(self) -> str:
        return self.as_("text")

    def as_(self, format_name: str, language: str | None = None) -> str:
        """The report in one of the formats of ``--format``. Raises UserError for an unknown format."""
        from gonogo.report import render

        return render(self, format_name, choose_language(language, os.environ))


def check_files(*paths: str | Path, command: Words = (), environment: str | Path | None = None) -> DisplayedReport:
    """``gonogo check PATHS -- COMMAND``.

    ``environment``: a file of package versions to use instead of the installed ones. Raises UserError if an input
    can't be read.
    """
    from msgspec.structs import replace

    from gonogo.check.findings import check
    from gonogo.check.settings import read_settings

    first = Path(paths[0]) if paths else Path.cwd()
    settings = read_settings(first if first.is_dir() else first.parent)
    if environment is not None:
        settings = replace(settings, environment=Path(environment))
    words, files = _split_command(command), [str(path) for path in paths]
    return _displayed_report(
        check(files, words, settings=settings).report, Invocation(tuple(words), files=tuple(files))
    )


def rehearse_command(
    command: Words,
    *,
    gpus: str | None = None,
    nodes: int | None = None,
    host_memory: str | None = None,
    ranks: str = "auto",
    steps: int = 2,
    timeout: float = 600.0,
    env: Sequence[str] = (),
) -> DisplayedReport:
    """``gonogo rehearse -- COMMAND``, with the options of the same names; progress is written to stderr.

    Raises UserError for everything that the user has to change.
    """
    from gonogo.rehearse.automatic_preparation import prepare_and_rehearse
    from gonogo.rehearse.display import live_display, progress_line_printer
    from gonogo.rehearse.request import RehearsalRequest

    language = choose_language(None, os.environ)
    request = RehearsalRequest(
        _split_command(command),
        gpus=gpus,
        nodes=nodes,
        host_memory=host_memory,
        ranks=ranks,
        steps=steps,
        timeout=timeout,
        env=tuple(env),
    )
    report_progress = progress_line_printer(language)
    with live_display(language) as shown:
        _, report = prepare_and_rehearse(request, shown or (lambda status: report_progress(status.activity)))
    return _displayed_report(
        report, Invocation(tuple(request.command), machine_options(gpus, nodes, host_memory, env=env))
    )


def diagnose_logs(*logs: str | Path, command: Words = ()) -> DisplayedReport:
    """``gonogo diagnose LOGS -- COMMAND``. Raises UserError for a log that doesn't exist or can't be read."""
    from gonogo.diagnose.findings import read_failure

    words, files = _split_command(command), [str(log) for log in logs]
    return _displayed_report(read_failure(files, command=words).report(), Invocation(tuple(words), files=tuple(files)))


def _split_command(command: Words) -> list[str]:
    return shlex.split(command) if isinstance(command, str) else list(command)


def _displayed_report(report: Report, call: Invocation) -> DisplayedReport:
    sys.stderr.flush()
    report = with_invocation(report, call)
    return DisplayedReport(**{name: getattr(report, name) for name in report.__struct_fields__})
