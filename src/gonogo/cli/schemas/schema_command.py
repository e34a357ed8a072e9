"""The command ``gonogo schema``."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import Lang, Output
from gonogo.finding import UserError, translated
from gonogo.finding.language import choose_language


def schema(
    what: Annotated[
        str,
        typer.Argument(
            metavar="deepspeed|report", help="deepspeed: DeepSpeed configs; report: the output of --format json."
        ),
    ],
    version: Annotated[
        str | None, typer.Option(metavar="X", help="DeepSpeed version, e.g. 0.16.9. Default: the newest known.")
    ] = None,
    output: Output = None,
    lang: Lang = None,
) -> None:
    """Print a JSON Schema: for editors that complete and check DeepSpeed's configs, for programs that read reports.

    For instance: gonogo schema deepspeed --version 0.16.9 --output ds.schema.json

    输出 JSON Schema：供编辑器补全和检查 DeepSpeed 配置，或供程序读取报告。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.report.output import check_writable, publish_text

        check_writable(output)
        if what == "deepspeed":
            from gonogo.evidence.config.deepspeed_schema import config_schema, validate_deepspeed_version

            found = config_schema(validate_deepspeed_version(version), language)
        elif what == "report" and version is None:
            from gonogo.cli.schemas.report import report_schema

            found = report_schema()
        else:
            raise UserError(
                translated("gonogo schema {what}: must be deepspeed (with --version) or report").format(
                    what=what if version is None else f"{what} --version {version}"
                )
            )
        publish_text(lambda stream: stream.write(json.dumps(found, ensure_ascii=False, indent=2) + "\n"), output)
