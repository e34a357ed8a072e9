"""The command ``gonogo compare``, which compares the reports of two rehearsals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import Format, Lang, Open, Output
from gonogo.finding.language import choose_language


def compare(
    before: Annotated[
        Path, typer.Argument(metavar="BEFORE", help="The earlier report of gonogo rehearse (JSON or HTML).")
    ],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The later report (JSON or HTML).")],
    peak_growth: Annotated[
        float, typer.Option(min=0.0, metavar="PERCENT", help="How much a memory peak may grow, in percent.")
    ] = 2.0,
    format_: Format = "text",
    output: Output = None,
    open_: Open = False,
    lang: Lang = None,
) -> None:
    """Compare two rehearsals: SAME, BETTER or REGRESSED, and what changed in memory, speed, findings and assumptions.

    For instance: gonogo compare before.json after.json    or: gonogo compare before.json after.json --open

    Write the reports with: gonogo rehearse --format json --output before.json -- bash launch.sh

    比较两次排练：相同、更好还是退步，以及内存、速度、发现与假设的变化。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.finding.call import Invocation
        from gonogo.rehearse.baseline import compare_files
        from gonogo.report import known_format
        from gonogo.report.answer.command_placeholders import with_invocation
        from gonogo.report.output import check_writable, publish

        known_format(format_)
        check_writable(output)
        report = compare_files(before, after, peak_growth)
        report = with_invocation(report, Invocation(files=(str(before), str(after))))
        publish(report, format_, output, language, open_)
        raise SystemExit(report.exit_status)
