"""The report as GitHub-flavoured Markdown, to paste into an issue."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gonogo.finding import Finding, Report
from gonogo.finding.finding_groups import grouped_notes, grouped_skipped, shown_findings
from gonogo.finding.log_answer import SimilarThread
from gonogo.finding.ranks import ranks_text
from gonogo.report.answer.headline import make_headline, verdict_line
from gonogo.report.seen import evidence_tables, leading_tables, report_summary
from gonogo.report.similar import clean_title, resolution_text
from gonogo.report.table import Table
from gonogo.report.trials.comparison import comparison_tables
from gonogo.report.trials.cure import cure_sections
from gonogo.report.trials.model_reading import reader_sections
from gonogo.report.trials.plan import strategy_reasons
from gonogo.report.untrusted import clean, clean_line
from gonogo.report.words import clue_line, colon, how_to_apply, word

_SPECIAL_PATTERN = re.compile(r"([\\`*_{}\[\]<>#|~&@])")


def to_markdown(report: Report, language: str) -> str:
    """The report as Markdown. Untrusted text is escaped, or put into code that it can't close."""
    return "\n".join(_report_lines(report, language)) + "\n"


def _escape(text: str) -> str:
    """Text with everything escaped that Markdown or HTML would interpret."""
    return _SPECIAL_PATTERN.sub(r"\\\1", clean_line(text))


def _inline_code(text: str) -> str:
    """Text as inline code; its fence is longer than any run of backticks in it."""
    line = clean_line(text)
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}" if line else ""


def _code_block(text: str, language: str) -> Iterator[str]:
    body = clean(text).rstrip("\n")
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", body)), default=0) + 1)
    yield from ("", f"{fence}{language}", body, fence)


def _report_lines(report: Report, language: str) -> Iterator[str]:
    answer = make_headline(report)
    yield f"## gonogo {_escape(report.command)}: {_escape(verdict_line(report, language))}"
    yield from ("", f"**{_escape(answer.reason.in_language(language))}**")
    what = _escape(answer.next.what.in_language(language))
    what = f"（{what}）" if language == "zh" else f" ({what})"
    todo = f"{_inline_code(answer.next.command)}{what}" if answer.next.command else what.strip(" ()（）")
    yield from ("", f"{word('next', language)}{colon(language)}{todo}")
    if answer.figures:
        yield ""
        for figure in answer.figures:
            name, value = figure.name.in_language(language), figure.value.in_language(language)
            yield f"- {_escape(name)}{colon(language)}{_escape(value)}"
    if summary := report_summary(report, language):
        yield from ("", _escape(summary))
    for note in grouped_notes(answer.shown):
        yield from ("", _escape(note.in_language(language)))
    for table in comparison_tables(report.comparison, language) if report.comparison is not None else ():
        yield from _table_lines(table)
    found, rest = shown_findings(report)
    for alike in found:
        yield from _finding_lines(alike.finding, language)
        if alike.others:
            yield from ("", f"{_escape(alike.heading(language))}{colon(language)}".rstrip(), "")
            yield from (f"- {_escape(place)}" for place in alike.places(language))
    if rest is not None:
        yield from ("", _escape(rest.in_language(language)))
    if report.clues:
        yield from ("", f"### {word('clues', language)}", "")
        yield from (f"- {_escape(clue_line(clue, language))}" for clue in report.clues)
    for table in leading_tables(report, language):
        yield from _table_lines(table)
    if report.similar:
        yield from ("", f"### {word('similar', language)}", "")
        yield from (_thread_line(thread, language) for thread in report.similar)
    cured = cure_sections(report.cure, language) if report.cure is not None else ()
    for section in (*cured, *reader_sections(report, language)):
        yield from ("", f"### {_escape(section.title)}", "")
        yield from (f"- {_escape(sentence)}" for sentence in section.said)
        if section.diff:
            yield from _code_block(section.diff, "diff")
    for table in evidence_tables(report, language):
        yield from _table_lines(table)
    if report.plan is not None:
        for name, sentences in strategy_reasons(report.plan, language):
            yield from ("", f"**{_escape(name)}**", "")
            yield from (f"- {_escape(text)}" for text in sentences)
    if report.covered:
        yield from ("", f"### {word('covered', language)}", "")
        yield from (f"- {_escape(text.in_language(language))}" for text in report.covered)
    if report.skipped:
        yield from ("", f"### {word('skipped', language)}", "")
        for skipped in grouped_skipped(report):
            what, why = skipped.what.in_language(language), skipped.why.in_language(language)
            yield f"- **{_escape(what)}**{colon(language)}{_escape(why)}"


def _finding_lines(finding: Finding, language: str) -> Iterator[str]:
    level = word(finding.level.value, language)
    yield from ("", f"### {level}{colon(language)}{_escape(finding.title.in_language(language))}", "")
    facts = [_inline_code(finding.hazard), word(finding.certainty.value, language)]
    if finding.ranks:
        facts.append(ranks_text(finding.ranks).en)
    if finding.module:
        facts.append(f"{word('module', language)} {_inline_code(finding.module)}")
    if finding.parameter:
        facts.append(f"{word('parameter', language)} {_inline_code(finding.parameter)}")
    yield ", ".join(facts)
    if finding.spans:
        yield ""
    for span in finding.spans:
        parts = [_inline_code(f"{span.path}:{span.line}:{span.column}"), _inline_code(span.text)]
        if span.label:
            parts.append(_escape(span.label.in_language(language)))
        yield f"- {' '.join(part for part in parts if part)}"
    yield from ("", f"**{word('cause', language)}**{colon(language)}{_escape(finding.cause.in_language(language))}", "")
    yield from (
        f"- **{word('help', language)}**{colon(language)}{_escape(step.in_language(language))}" for step in finding.cure
    )
    yield from (
        f"- **{word('confirm', language)}**{colon(language)}{_escape(text.in_language(language))}"
        for text in finding.remaining_confirmations
    )
    for fix in finding.fixes:
        how = word(fix.applicability.value, language)
        shown = f"（{how}）" if language == "zh" else f" ({how})"
        yield from (
            "",
            f"**{word('fix', language)}**{shown}{colon(language)}{_escape(fix.title.in_language(language))}",
        )
        if fix.diff:
            yield from _code_block(fix.diff, "diff")
        if command := how_to_apply(fix):
            yield from ("", f"{word('apply', language)}{colon(language)}{_inline_code(command)}")
    if finding.sources:
        yield from (
            "",
            f"{word('source', language)}{colon(language)}{', '.join(clean_line(source) for source in finding.sources)}",
        )


def _thread_line(thread: SimilarThread, language: str) -> str:
    lines = [_escape(lines) for lines in (clean_title(thread), resolution_text(thread, language)) if lines]
    return f"- {colon(language).join([clean_line(thread.address), *lines])}"


def _table_lines(table: Table) -> Iterator[str]:
    yield from ("", f"### {_escape(table.title)}", "")
    yield f"| {' | '.join(_escape(column) for column in table.columns)} |"
    yield f"| {' | '.join('---:' if n in table.numeric else '---' for n in range(len(table.columns)))} |"
    for row in table.rows:
        yield f"| {' | '.join(_escape(cell) for cell in row)} |"
    if table.note:
        yield from ("", _escape(table.note))
