"""The report for a terminal: the verdict, one screen a finding in the manner of rustc, then what was measured."""

from __future__ import annotations

import re

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text as Styled

from gonogo.finding import Finding, Fix, Report, Severity, Span, Text, Verdict
from gonogo.report.rehearsal import Table, summary, tables
from gonogo.report.untrusted import clean, clean_line
from gonogo.report.words import joined_ranks, word

_OF_VERDICT = {Verdict.GO: "bold green", Verdict.NO_GO: "bold red", Verdict.CANNOT_TELL: "bold yellow"}
_OF_SEVERITY = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
_TOKEN = re.compile(r"[\w.]+|\S")


def print_report(report: Report, console: Console, language: str) -> None:
    """Print the report on the console, in ``"en"`` or ``"zh"``.

    Everything is printed as styled text, never as markup, after terminal escapes have been taken out of it.
    """
    _print_verdict(report, console, language)
    for finding in report.findings:
        console.print()
        _print_finding(finding, console, language)
    if report.rehearsal is not None:
        for table in tables(report.rehearsal, language):
            console.print()
            _print_table(table, console)
    _print_coverage(report, console, language)


def _say(text: Text, language: str) -> str:
    return clean(text.in_language(language))


def _print_verdict(report: Report, console: Console, language: str) -> None:
    line = Styled(f" {report.verdict.value} ", style=f"{_OF_VERDICT[report.verdict]} reverse")
    line.append(f"  gonogo {clean_line(report.command)}", style="not reverse bold")
    console.print(line)
    counts = []
    for severity in Severity:
        count = sum(finding.severity is severity for finding in report.findings)
        if count:
            plural = "s" if language == "en" and count > 1 else ""
            counts.append(f"{count} {word(severity.value, language)}{plural}")
    if counts:
        console.print(Styled(", ".join(counts)))
    if report.rehearsal is not None:
        console.print(Styled(summary(report.rehearsal, language)))
    for note in report.notes:
        console.print(Styled(_say(note, language)))


def _print_finding(finding: Finding, console: Console, language: str) -> None:
    style = _OF_SEVERITY[finding.severity]
    head = Styled(f"{word(finding.severity.value, language)}[{clean_line(finding.hazard)}]", style=style)
    head.append(f": {clean_line(finding.title.in_language(language))}", style="bold")
    console.print(head)
    gutter = max((len(str(span.line)) for span in finding.spans), default=1) + 1
    for number, span in enumerate(finding.spans):
        _print_span(span, console, language, gutter, primary=number == 0, style=style)
    facts = [f"{word('certainty', language)}: {word(finding.certainty.value, language)}"]
    if finding.ranks:
        facts.append(f"{word('rank', language)} {joined_ranks(finding.ranks)}")
    if finding.module:
        facts.append(f"{word('module', language)} {clean_line(finding.module)}")
    if finding.parameter:
        facts.append(f"{word('parameter', language)} {clean_line(finding.parameter)}")
    lines = Grid.grid(padding=(0, 1))
    lines.add_column(justify="right", no_wrap=True)
    lines.add_column(overflow="fold")
    lines.add_row(Styled(f"{' ' * gutter}= ", style="blue"), Styled(", ".join(facts)))
    lines.add_row(Styled(f"{word('cause', language)}:", style="bold"), Styled(_say(finding.cause, language)))
    for step in finding.cure:
        lines.add_row(Styled(f"{word('help', language)}:", style="bold cyan"), Styled(_say(step, language)))
    console.print(lines)
    for fix in finding.fixes:
        _print_fix(fix, console, language)
    for source in finding.sources:
        console.print(Styled(f"{word('source', language)}: {clean_line(source)}", style="dim"), soft_wrap=True)


def _print_span(span: Span, console: Console, language: str, gutter: int, *, primary: bool, style: str) -> None:
    """The place, and below it the line of source with a mark under what is meant."""
    arrow = "-->" if primary else ":::"
    place = Styled(f"{' ' * (gutter - 1)}{arrow} ", style="blue")
    place.append(f"{clean_line(span.path)}:{span.line}:{span.column}", style="not blue")
    console.print(place, soft_wrap=True)
    label = clean_line(span.label.in_language(language)) if span.label else ""
    source = clean(span.text).replace("\n", " ").rstrip()
    bar = Styled(f"{' ' * gutter}|", style="blue")
    mark_style = style if primary else "bold blue"
    if not source.strip():
        if label:
            console.print(Styled.assemble(bar, (f" {label}", mark_style)))
        return
    start, end = _marked(span, source)
    before = Styled(source[:start]).cell_len
    width = max(Styled(source[start:end]).cell_len, 1)
    room = max(console.width - gutter - 3, 20)
    if before + width > room:  # show the part of a long line that the mark is under
        cut = max(start - room // 3, 0)
        source, start, end = f"…{source[cut:]}", start - cut + 1, end - cut + 1
        before = Styled(source[:start]).cell_len
        width = min(max(Styled(source[start:end]).cell_len, 1), room - before)
    console.print(bar)
    number = Styled(f"{span.line:>{gutter - 1}} | ", style="blue")
    shown = Styled(source)
    shown.truncate(room, overflow="ellipsis")
    console.print(Styled.assemble(number, shown.copy()), no_wrap=True, overflow="ignore", crop=False)
    mark = ("^" if primary else "-") * width
    line = Styled.assemble(bar, (f" {' ' * before}{mark}", mark_style))
    if label and gutter + 2 + before + width + 1 + Styled(label).cell_len <= console.width:
        console.print(line.append(f" {label}", style=mark_style))
    else:
        console.print(line)
        if label:
            console.print(Padding(Styled(label, style=mark_style), (0, 0, 0, gutter + 2)))


def _marked(span: Span, source: str) -> tuple[int, int]:
    """Where the mark starts and ends in the source: the token at the column, or the whole line where none is there."""
    indent = len(source) - len(source.lstrip())
    column = len(clean(span.text[: span.column - 1]))  # a tab before it has been widened
    if span.column > 1 and indent <= column < len(source) and (token := _TOKEN.match(source, column)):
        return token.span()
    return indent, len(source)


def _print_fix(fix: Fix, console: Console, language: str) -> None:
    head = Styled(f"{word('fix', language)} ", style="bold green")
    head.append(f"({word(fix.applicability.value, language)}): {_say(fix.title, language)}", style="not bold default")
    console.print(head)
    for line in clean(fix.diff).splitlines():
        colour = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        console.print(Styled(f"    {line}", style=colour), soft_wrap=True)


def _print_table(table: Table, console: Console) -> None:
    console.print(Rule(Styled(table.title, style="bold"), align="left", style="dim"))
    drawn = Grid(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for number, column in enumerate(table.columns):
        numeric = number in table.numeric
        drawn.add_column(
            Styled(column), justify="right" if numeric else "left", no_wrap=numeric, overflow="fold", ratio=None
        )
    for row in table.rows:
        drawn.add_row(*(Styled(cell) for cell in row))
    console.print(drawn)
    if table.note:
        console.print(Styled(table.note, style="dim"))


def _print_coverage(report: Report, console: Console, language: str) -> None:
    if report.covered:
        console.print()
        console.print(Rule(Styled(word("covered", language), style="bold"), align="left", style="dim"))
        for text in report.covered:
            console.print(Styled(_say(text, language)))
    if report.skipped:
        console.print()
        console.print(Rule(Styled(word("skipped", language), style="bold"), align="left", style="dim"))
        for skipped in report.skipped:
            line = Styled(_say(skipped.what, language), style="bold")
            console.print(line.append(f": {_say(skipped.why, language)}", style="not bold"))
