"""The report for a terminal: the verdict, one screen a finding in the manner of rustc, then what was measured."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text as Styled

from gonogo.finding import Finding, Fix, Report, Severity, Text, Verdict
from gonogo.report.bisection import bisection_table
from gonogo.report.environment import environment_tables
from gonogo.report.excerpt import print_excerpt
from gonogo.report.plan import summary as plan_summary
from gonogo.report.plan_text import print_plan
from gonogo.report.rehearsal import summary, tables
from gonogo.report.table import print_table
from gonogo.report.untrusted import clean, clean_line
from gonogo.report.words import colon, counted, how_to_apply, of_ranks, word

_SCREEN = 3
"""Findings in full that fit a screen."""
_OF_VERDICT = {Verdict.GO: "bold green", Verdict.NO_GO: "bold red", Verdict.CANNOT_TELL: "bold yellow"}
_OF_SEVERITY = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}


def print_report(report: Report, console: Console, language: str) -> None:
    """Print the report on the console, in ``"en"`` or ``"zh"``.

    Everything is printed as styled text, never as markup, after terminal escapes have been taken out of it.
    """
    _print_verdict(report, console, language)
    # A log may admit many causes: the first is told in full, so that the answer fits a screen.
    in_full = 1 if report.log is not None else len(report.findings)
    advised: set[tuple[object, ...]] = set()
    for finding in report.findings[:in_full]:
        console.print()
        advice = (finding.hazard, finding.cure, finding.confirm, finding.sources)
        _print_finding(finding, console, language, advise=advice not in advised)
        advised.add(advice)
    if others := report.findings[in_full:]:
        console.print()
        console.print(Styled(f"{word('others', language)}{colon(language).rstrip()}", style="bold"))
        for finding in others:
            _print_briefly(finding, console, language)
    if report.rehearsal is not None:
        for table in tables(report.rehearsal, language):
            console.print()
            print_table(table, console)
    if report.environment is not None:
        for table in environment_tables(report.environment, language):
            console.print()
            print_table(table, console)
    if report.bisection is not None:
        console.print()
        print_table(bisection_table(report.bisection, language), console)
    if report.plan is not None:
        print_plan(report.plan, console, language)
    _print_coverage(report, console, language)
    if report.rehearsal is not None or min(in_full, len(report.findings)) > _SCREEN:  # the first line is out of sight
        console.print()
        console.print(_banner(report).append(f"  {counted(report, language)}"))


def _say(text: Text, language: str) -> str:
    return clean(text.in_language(language))


def _print_verdict(report: Report, console: Console, language: str) -> None:
    console.print(_banner(report).append(f"  gonogo {clean_line(report.command)}", style="bold"))
    if counts := counted(report, language):
        console.print(Styled(counts))
    if report.rehearsal is not None:
        console.print(Styled(summary(report.rehearsal, language)))
    if report.plan is not None:
        console.print(Styled(plan_summary(report.plan, language)))
    for note in report.notes:
        console.print(Styled(_say(note, language)))


def _banner(report: Report) -> Styled:
    return Styled.assemble((f" {report.verdict.value} ", f"{_OF_VERDICT[report.verdict]} reverse"))


def _print_finding(finding: Finding, console: Console, language: str, *, advise: bool) -> None:
    """Print a finding; without ``advise`` less what has been said of the same hazard above: cures and sources."""
    style = _OF_SEVERITY[finding.severity]
    head = Styled.assemble((f"{word(finding.severity.value, language)}[{clean_line(finding.hazard)}]", style))
    console.print(head.append(f"{colon(language)}{clean_line(finding.title.in_language(language))}", style="bold"))
    gutter = max((len(str(span.line)) for span in finding.spans), default=1) + 1
    for number, span in enumerate(finding.spans):
        print_excerpt(span, console, language, gutter, primary=number == 0, style=style)
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
    for step in finding.cure if advise else ():
        lines.add_row(_label("help", "bold cyan", language), Styled(_say(step, language)))
    for text in finding.confirm if advise else ():
        lines.add_row(_label("confirm", "bold", language), Styled(_say(text, language)))
    console.print(lines)
    for fix in finding.fixes:
        _print_fix(fix, console, language)
    for source in finding.sources if advise else ():
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


def _print_fix(fix: Fix, console: Console, language: str) -> None:
    how = f" ({word(fix.applicability.value, language)}){colon(language)}"
    console.print(Styled.assemble((word("fix", language), "bold green"), how, _say(fix.title, language)))
    for line in clean(fix.diff).splitlines():
        colour = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        console.print(Styled(f"    {line}", style=colour), soft_wrap=True)
    if command := how_to_apply(fix):
        console.print(Styled(f"    {word('apply', language)}{colon(language)}{command}", style="cyan"), soft_wrap=True)


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
