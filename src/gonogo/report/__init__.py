"""Report renderers, one per format; they depend only on gonogo.finding."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, TextIO

from msgspec.structs import replace

from gonogo.finding import Applicability, Finding, Fix, Report, UserError, translated

if TYPE_CHECKING:
    from gonogo.finding.redaction import Redactor

PAGE_FORMATS = ("text", "json", "markdown")
"""Formats in which pages (``explain``, ``hazards``) can be written, too."""
FORMATS = (*PAGE_FORMATS, "html", "sarif", "github", "junit")
PACK = "pack"
"""A format only of ``diagnose``: the evidence, packed for a reader."""
FILE_WIDTH = 100


def known_format(name: str, *more: str) -> str:
    """The name if it is a known format or one of ``more``. Raises UserError, which lists them, otherwise."""
    if name not in (known := (*FORMATS, *more)):
        raise UserError(
            translated("--format {name}: must be one of {known}").format(name=repr(name), known=", ".join(known))
        )
    return name


def check_page_format(name: str) -> str:
    """The name if pages can be written in that format. Raises UserError, which lists those formats, otherwise."""
    if name not in PAGE_FORMATS:
        raise UserError(
            translated("--format {name}: an explain page can only be written as {known}").format(
                name=repr(name), known=", ".join(PAGE_FORMATS)
            )
        )
    return name


def render(report: Report, format_name: str, language: str) -> str:
    """The report in a format, as plain text without colour and secrets.

    Raises UserError for an unknown format.
    """

    known_format(format_name, PACK)
    report = redact_report(report)
    if format_name == PACK:
        from gonogo.report.untrusted import clean

        return clean(report.pack)
    if format_name == "json":
        from gonogo.report.json_ import to_json

        return to_json(report, language)
    if format_name == "markdown":
        from gonogo.report.markdown import to_markdown

        return to_markdown(report, language)
    if format_name == "html":
        from gonogo.report.html import to_html

        return to_html(report, language)
    if format_name == "sarif":
        from gonogo.report.sarif import to_sarif

        return to_sarif(report, language)
    if format_name == "github":
        from gonogo.report.github import to_github

        return to_github(report, language)
    if format_name == "junit":
        from gonogo.report.junit import to_junit

        return to_junit(report, language)
    buffer = io.StringIO()
    _print_text(report, buffer, language, width=FILE_WIDTH)
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def print_to(stream: TextIO, report: Report, format_name: str, language: str) -> None:
    """Print the report to a stream, in colour if it is a terminal that supports it (respects ``NO_COLOR``)."""
    if format_name == "text" and stream.isatty():
        _print_text(redact_report(report), stream, language, width=None)
    else:
        stream.write(render(report, format_name, language))
    stream.flush()


def _print_text(report: Report, stream: TextIO, language: str, width: int | None) -> None:
    from gonogo.report.page import Page, should_use_colour
    from gonogo.report.text import print_report

    print_report(report, Page(stream, width=width, colour=should_use_colour(stream)), language)


def redact_report(report: Report) -> Report:
    """The report with every secret in its text masked.

    A fix whose edits contain a secret becomes manual: masked edits could not be applied.
    """
    from gonogo.finding.redaction import process_redactor  # loads hundreds of patterns

    redactor = process_redactor()
    findings = tuple(_without_secret_edits(finding, redactor) for finding in report.findings)
    return redactor.redact_tree(replace(report, findings=findings) if findings != report.findings else report)


def _without_secret_edits(finding: Finding, redactor: Redactor) -> Finding:
    def has_secret(data: bytes) -> bool:
        text = data.decode("utf-8", "surrogateescape")
        return redactor.text(text) != text

    fixes = tuple(
        Fix(fix.title, Applicability.MANUAL, fix.diff)
        if any(has_secret(data) for edit in fix.edits for data in (edit.before, edit.after))
        else fix
        for fix in finding.fixes
    )
    return finding if fixes == finding.fixes else replace(finding, fixes=fixes)
