"""The command ``gonogo env``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import Format, Lang, Open, Output
from gonogo.finding.language import choose_language


def env(
    environment: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Describe the environment in this file instead: pip freeze, a lock file, a Dockerfile, `gonogo env` …",
        ),
    ] = None,
    format_: Format = "text",
    output: Output = None,
    open_: Open = False,
    lang: Lang = None,
) -> None:
    """Show this Python and machine as gonogo sees them, and whether they agree with each other. Imports no torch.

    To check for another machine: run gonogo env --format json there, and give what it prints to --environment here.

    Secrets, user and host names are never recorded.

    查看当前 Python 与机器的环境，并检查是否自相矛盾。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.report import known_format
        from gonogo.report.output import check_writable, publish

        known_format(format_)
        check_writable(output)
        from gonogo.check.environment import environment_report
        from gonogo.confinement.messages import confinement_text
        from gonogo.evidence.environment.reading import read_environment_file
        from gonogo.evidence.environment.this_machine import inspect_this_machine

        if environment is not None:
            report = environment_report(read_environment_file(environment))
        else:
            from gonogo.confinement.confinement import detect_means

            report = environment_report(inspect_this_machine(deep=True), (confinement_text(*detect_means()),))
        publish(report, format_, output, language, open_)
        raise SystemExit(report.verdict.exit_status)
