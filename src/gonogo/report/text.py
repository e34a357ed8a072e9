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
from gonogo.report.words import colon, of_ranks, word

_OF_VERDICT = {Verdict.GO: "bold green", Verdict.NO_GO: "bold red", Verdict.CANNOT_TELL: "bold yellow"}
_OF_SEVERITY = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
_TOKEN = re.compile(r"[\w.]+|\S")


def print_report(report: Report, console: Console, language: str) -> None:
    """Print the report on the console, in ``"en"`` or ``"zh"``.

    Everything is printed as styled text, never as markup, after terminal escapes have been taken out of it.
    """
    _print_verdict(report, console, language)
    # A log may admit many causes: the first is told in full, so that the answer fits a screen.
    in_full = 1 if report.log is not None else len(report.findings)
    for finding in report.findings[:in_full]:
        console.print()
        _print_finding(finding, console, language)
    if others := report.findings[in_full:]:
        console.print()
        console.print(Styled(f"{word('others', language)}{colon(language).rstrip()}", style="bold"))
        for finding in others:
            _print_briefly(finding, console, language)
    if report.rehearsal is not None:
        for table in tables(report.rehearsal, language):
            console.print()
            _print_table(table, console)
    _print_coverage(report, console, language)
    if report.rehearsal is not None:  # the first line has gone out of sight
        console.print()
        console.print(_banner(report).append(f"  {_counts(report, language)}"))


def _say(text: Text, language: str) -> str:
    return clean(text.in_language(language))


def _print_verdict(report: Report, console: Console, language: str) -> None:
    console.print(_banner(report).append(f"  gonogo {clean_line(report.command)}", style="bold"))
    if counts := _counts(report, language):
        console.print(Styled(counts))
    if report.rehearsal is not None:
        console.print(Styled(summary(report.rehearsal, language)))
    for note in report.notes:
        console.print(Styled(_say(note, language)))


def _banner(report: Report) -> Styled:
    return Styled.assemble((f" {report.verdict.value} ", f"{_OF_VERDICT[report.verdict]} reverse"))


def _counts(report: Report, language: str) -> str:
    counts = []
    for severity in Severity:
        if count := sum(finding.severity is severity for finding in report.findings):
            name = word(severity.value, language)
            counts.append(f"{count} 个{name}" if language == "zh" else f"{count} {name}{'s' if count > 1 else ''}")
    return ("，" if language == "zh" else ", ").join(counts)


def _print_finding(finding: Finding, console: Console, language: str) -> None:
    style = _OF_SEVERITY[finding.severity]
    head = Styled.assemble((f"{word(finding.severity.value, language)}[{clean_line(finding.hazard)}]", style))
    console.print(head.append(f"{colon(language)}{clean_line(finding.title.in_language(language))}", style="bold"))
    gutter = max((len(str(span.line)) for span in finding.spans), default=1) + 1
    for number, span in enumerate(finding.spans):
        _print_span(span, console, language, gutter, primary=number == 0, style=style)
    facts = [word(finding.certainty.value, language)]
    if finding.ranks:
        facts.append(of_ranks(finding.ranks))
    if finding.module:
        facts.append(f"{word('module', language)} {clean_line(finding.module)}")
    if finding.parameter:
        facts.append(f"{word('parameter', language)} {clean_line(finding.parameter)}")
    console.print(Styled.assemble((f"{' ' * gutter}= ", "blue"), ", ".join(facts)))
    lines = Grid.grid(padding=(0, 1 if language == "en" else 0, 0, 0))
    lines.add_column(justify="right", no_wrap=True)
    lines.add_column(overflow="fold")
    lines.add_row(_label("cause", "bold", language), Styled(_say(finding.cause, language)))
    for step in finding.cure:
        lines.add_row(_label("help", "bold cyan", language), Styled(_say(step, language)))
    for text in finding.confirm:
        lines.add_row(_label("confirm", "bold", language), Styled(_say(text, language)))
    console.print(lines)
    for fix in finding.fixes:
        _print_fix(fix, console, language)
    for source in finding.sources:
        line = f"{word('source', language)}{colon(language)}{clean_line(source)}"
        console.print(Styled(line, style="dim"), soft_wrap=True)


def _print_briefly(finding: Finding, console: Console, language: str) -> None:
    certainty = word(finding.certainty.value, language)
    place = f" ({clean_line(finding.spans[0].path)}:{finding.spans[0].line})" if finding.spans else ""
    head = Styled.assemble((clean_line(finding.hazard), _OF_SEVERITY[finding.severity]), f" ({certainty})")
    text = clean_line(finding.title.in_language(language))
    console.print(Padding(head.append(f"{colon(language)}{text}{place}"), (0, 0, 0, 2)))
    for confirm in finding.confirm[:1]:
        said = f"{word('confirm', language)}{colon(language)}{clean_line(confirm.in_language(language))}"
        console.print(Padding(Styled(said, style="dim"), (0, 0, 0, 4)))


def _label(name: str, style: str, language: str) -> Styled:
    return Styled(f"{word(name, language)}{colon(language).rstrip()}", style=style)


def _print_span(span: Span, console: Console, language: str, gutter: int, *, primary: bool, style: str) -> None:
    """The place, and below it the line of source with a mark under what is meant."""
    arrow = "-->" if primary else ":::"
    place = f"{clean_line(span.path)}:{span.line}:{span.column}"
    console.print(Styled.assemble((f"{' ' * (gutter - 1)}{arrow} ", "blue"), place), soft_wrap=True)
    label = clean_line(span.label.in_language(language)) if span.label else ""
    source = clean(span.text).replace("\n", " ").rstrip()
    bar = Styled.assemble((f"{' ' * gutter}|", "blue"))
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
        if cut:
            source, start, end = f"…{source[cut:]}", start - cut + 1, end - cut + 1
        before = Styled(source[:start]).cell_len
        width = min(max(Styled(source[start:end]).cell_len, 1), room - before)
    console.print(bar)
    shown = Styled(source)
    shown.truncate(room, overflow="ellipsis")
    number = (f"{span.line:>{gutter - 1}} | ", "blue")
    console.print(Styled.assemble(number, shown), no_wrap=True, overflow="ignore", crop=False)
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
    how = f" ({word(fix.applicability.value, language)}){colon(language)}"
    console.print(Styled.assemble((word("fix", language), "bold green"), how, _say(fix.title, language)))
    for line in clean(fix.diff).splitlines():
        colour = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        console.print(Styled(f"    {line}", style=colour), soft_wrap=True)


def _print_table(table: Table, console: Console) -> None:
    console.print(Rule(Styled(table.title, style="bold"), align="left", style="dim"))
    drawn = Grid(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for number, column in enumerate(table.columns):
        numeric = number in table.numeric
        drawn.add_column(Styled(column), justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
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
            what = (_say(skipped.what, language), "bold")
            console.print(Styled.assemble(what, colon(language), _say(skipped.why, language)))
