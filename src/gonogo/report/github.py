"""The report as GitHub Actions workflow commands, which are shown as annotations beside the changed lines."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.finding import Finding, Report, Severity
from gonogo.report.annotation import annotation_severity, annotation_text, is_stream, path_from_repository_root
from gonogo.report.answer.headline import make_headline, verdict_line
from gonogo.report.similar import thread_line
from gonogo.report.trials.model_reading import reader_lines
from gonogo.report.untrusted import clean, clean_line
from gonogo.report.words import colon, finding_counts_text, word

_COMMAND_OF_SEVERITY = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def to_github(report: Report, language: str) -> str:
    """The answer in three lines; one workflow command per finding, gap and similar thread; a summary line."""
    return "".join(f"{line}\n" for line in _report_lines(report, language))


def _report_lines(report: Report, language: str) -> Iterator[str]:
    answer = make_headline(report)
    yield f"gonogo {clean_line(report.command)}{colon(language)}{clean_line(verdict_line(report, language))}"
    yield f"{word('reason', language)}{colon(language)}{clean_line(answer.reason.in_language(language))}"
    yield f"{word('next', language)}{colon(language)}{clean_line(answer.next.to_text(language))}"
    for finding in report.findings:
        yield _annotation_line(finding, language)
    for skipped in report.skipped:
        what, why = skipped.what.in_language(language), skipped.why.in_language(language)
        yield _workflow_command("notice", {"title": word("skipped", language)}, f"{what}{colon(language)}{why}")
    for thread in report.similar:
        yield _workflow_command("notice", {"title": word("similar", language)}, thread_line(thread, language))
    for line in reader_lines(report, language):
        yield _workflow_command("notice", {"title": word("read", language)}, line)
    parts = [verdict_line(report, language), finding_counts_text(report, language)]
    comma = "，" if language == "zh" else ", "
    yield f"gonogo {clean_line(report.command)}{colon(language)}{comma.join(part for part in parts if part)}"


def _annotation_line(finding: Finding, language: str) -> str:
    properties: dict[str, str] = {}
    if finding.spans and not is_stream(finding.spans[0].path):
        span = finding.spans[0]
        properties["file"] = path_from_repository_root(span.path)
        if span.line > 0:
            properties["line"] = str(span.line)
            properties["endLine"] = str(max(span.end_line, span.line))
            if span.end_line <= span.line and span.column > 0:  # GitHub accepts columns only within a single line
                properties["col"] = str(span.column)
                if span.end_column > span.column:
                    properties["endColumn"] = str(span.end_column)
    title = clean_line(finding.title.in_language(language))
    properties["title"] = f"{title} [{clean_line(finding.hazard)}]"
    return _workflow_command(
        _COMMAND_OF_SEVERITY[annotation_severity(finding)], properties, annotation_text(finding, language)
    )


def _workflow_command(name: str, properties: dict[str, str], message: str) -> str:
    listed = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    return f"::{name} {listed}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")
