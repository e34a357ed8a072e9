"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Format = Annotated[
    str,
    typer.Option("--format", metavar="text|json|markdown|sarif|github|junit", help="How the report is written."),
]
PageFormat = Annotated[str, typer.Option("--format", metavar="text|json|markdown", help="How it is written.")]
Output = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report to FILE, not to stdout.")]
Lang = Annotated[
    str | None,
    typer.Option("--lang", metavar="en|zh", help="Language of the report. Default: the locale's. 报告语言"),
]
