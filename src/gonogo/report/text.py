"""The report for a terminal: the verdict, one screen per finding in the style of rustc, then the measurements."""

from __future__ import annotations

from collections.abc import Iterable

from gonogo.finding import Finding, Fix, Level, Report, Text, Verdict, translated
from gonogo.finding.finding_groups import FindingGroup, grouped_notes, grouped_skipped, shown_findings
from gonogo.finding.log_answer import SimilarThread
from gonogo.finding.ranks import ranks_text
from gonogo.report.answer.headline import Headline, badge, make_headline
from gonogo.report.excerpt import print_excerpt
from gonogo.report.page import Page, StyledText, column_width
from gonogo.report.seen import evidence_tables, leading_tables, report_summary
from gonogo.report.similar import clean_title, resolution_text
from gonogo.report.trials.comparison import comparison_tables
from gonogo.report.trials.cure import Section, cure_sections
from gonogo.report.trials.model_reading import reader_sections
from gonogo.report.trials.plan_text import print_plan
from gonogo.report.untrusted import clean, clean_line
from gonogo.report.words import clue_line, colon, finding_counts_text, how_to_apply, word

_MORE_SOURCES = translated(" (+{count} more: run gonogo explain {hazard})")
_COLUMN_GAP = 2
_MAX_FINDINGS_ON_SCREEN = 3
"""How many complete findings fit on a screen."""
_VERDICT_STYLE = {Verdict.GO: "bold green", Verdict.NO_GO: "bold red", Verdict.CANNOT_TELL: "bold yellow"}
_LEVEL_STYLE = {
    Level.ERROR: "bold red",
    Level.RISK: "bold magenta",
    Level.WARNING: "bold yellow",
    Level.NOTE: "bold cyan",
}


def print_report(report: Report, page: Page, language: str) -> None:
    """Print the report on the page, in ``"en"`` or ``"zh"``.

    Everything is printed as styled text, never as markup, after terminal escapes have been removed.
    """
    _print_answer(report, make_headline(report), page, language)
    if report.comparison is not None:
        for table in comparison_tables(report.comparison, language):
            page.line()
            page.table(table)
    # A log may have many possible causes: only the first is printed in full, so that the answer fits on a screen.
    found, rest = shown_findings(report)
    in_full = 1 if report.log is not None else len(found)
    advised: set[tuple[object, ...]] = set()
    for finding, alike in ((one.finding, one) for one in found[:in_full]):
        page.line()
        advice = (finding.hazard, finding.cure, finding.remaining_confirmations, finding.sources)
        _print_finding(finding, page, language, with_advice=advice not in advised)
        _print_other_places(alike, page, language)
        advised.add(advice)
    if report.clues:
        page.line()
        page.line(StyledText(f"{word('clues', language)}{colon(language).rstrip()}", "bold"))
        for clue in report.clues:
            page.line(StyledText(f"- {clean_line(clue_line(clue, language))}"), indent=2)
    if others := [one.finding for one in found[in_full:]]:
        page.line()
        page.line(StyledText(f"{word('others', language)}{colon(language).rstrip()}", "bold"))
        for finding in others:
            _print_briefly(finding, page, language)
    if rest is not None:
        page.line()
        page.line(StyledText(_clean_text(rest, language)))
    for table in leading_tables(report, language):
        page.line()
        page.table(table)
    if report.similar:
        _print_similar(report.similar, page, language)
    if report.cure is not None:
        _print_sections(cure_sections(report.cure, language), page)
    _print_sections(reader_sections(report, language), page)
    if report.plan is not None:
        print_plan(report.plan, page, language)
    else:
        for table in evidence_tables(report, language):
            page.line()
            page.table(table)
    _print_coverage(report, page, language)
    if (
        report.rehearsal is not None or min(in_full, len(found)) > _MAX_FINDINGS_ON_SCREEN
    ):  # the first line has scrolled out of sight
        page.line()
        page.line(_banner(report, make_headline(report), language).append(f"  {finding_counts_text(report, language)}"))


def _clean_text(text: Text, language: str) -> str:
    return clean(text.in_language(language))


def _print_answer(report: Report, answer: Headline, page: Page, language: str) -> None:
    """Print verdict, reason and next command, one per line; then figures, summary and notes."""
    page.line(_banner(report, answer, language).append(f"  gonogo {clean_line(report.command)}", "bold"))
    page.line(StyledText(_to_line(answer.reason, language), "bold"), wrap=page.is_terminal)
    what = StyledText(_to_line(answer.next.what, language), "dim" if answer.next.command else "")
    todo = StyledText(f"{word('next', language)}{colon(language)}", "cyan")
    if answer.next.command:
        todo.append(clean_line(answer.next.command), "bold")
        # Text to copy gets its own line if both don't fit on one.
        before, after = ("（", "）") if language == "zh" else ("   (", ")")
        both = StyledText.assemble(todo, before, what, after)
        if not page.is_terminal or column_width(both.plain) <= page.width:
            page.line(both, wrap=False)
        else:
            page.line(todo, wrap=False)
            page.line(
                StyledText.assemble(before.strip(), what, after),
                indent=column_width(f"{word('next', language)}{colon(language)}"),
            )
    else:
        page.line(todo.append(what), wrap=page.is_terminal)
    page.line()
    labels = [_to_line(figure.name, language) for figure in answer.figures]
    column = max(map(column_width, labels), default=0) + _COLUMN_GAP
    for label, figure in zip(labels, answer.figures, strict=True):
        value = StyledText(_to_line(figure.value, language))
        page.labelled(StyledText.assemble((label, "dim"), " " * (column - column_width(label))), column, value)
    for text in (finding_counts_text(report, language), report_summary(report, language)):
        if text:
            page.line(StyledText(text))
    for note in grouped_notes(answer.shown):
        page.line(StyledText(_clean_text(note, language)))


def _to_line(text: Text, language: str) -> str:
    return clean_line(text.in_language(language))


def _banner(report: Report, answer: Headline, language: str) -> StyledText:
    style = "bold red" if report.regressed else _VERDICT_STYLE[report.verdict]
    banner = StyledText.assemble((f" {badge(report, language)} ", f"{style} reverse"))
    if answer.scope is not None:
        scope = _to_line(answer.scope, language)
        banner.append(f"（{scope}）" if language == "zh" else f"({scope}) ")
    return banner


def _print_finding(finding: Finding, page: Page, language: str, *, with_advice: bool) -> None:
    """Print a finding; without ``with_advice``, omit the cures and sources already printed for the same hazard."""
    style = _LEVEL_STYLE[finding.level]
    head = StyledText.assemble((f"{word(finding.level.value, language)}[{clean_line(finding.hazard)}]", style))
    page.line(head.append(f"{colon(language)}{clean_line(finding.title.in_language(language))}", "bold"))
    gutter = max((len(str(span.line)) for span in finding.spans), default=1) + 1
    for number, span in enumerate(finding.spans):
        print_excerpt(span, page, language, gutter, is_primary=number == 0, style=style)
    facts = [f"{word('certainty', language)}{colon(language)}{word(finding.certainty.value, language)}"]
    if finding.ranks:
        facts.append(ranks_text(finding.ranks).en)
    if finding.module:
        facts.append(f"{word('module', language)} {clean_line(finding.module)}")
    if finding.parameter:
        facts.append(f"{word('parameter', language)} {clean_line(finding.parameter)}")
    page.line(StyledText.assemble((f"{' ' * gutter}= ", "blue"), ("，" if language == "zh" else ", ").join(facts)))
    labelled = [(_styled_label("cause", "bold", language), finding.cause)]
    if with_advice:
        labelled += [(_styled_label("help", "bold cyan", language), step) for step in finding.cure]
        labelled += [(_styled_label("confirm", "bold", language), text) for text in finding.remaining_confirmations]
    column = max(column_width(label.plain) for label, _ in labelled)
    for label, text in labelled:
        page.labelled(label, column, StyledText(_clean_text(text, language)))
    for fix in finding.fixes:
        _print_fix(fix, page, language)
    if finding.sources and with_advice:
        more = len(finding.sources) - 1
        line = f"{word('source', language)}{colon(language)}{clean_line(finding.sources[0])}"
        if more:
            rest = _MORE_SOURCES.format(count=more, hazard=clean_line(finding.hazard))
            line += rest.in_language(language)
        page.line(StyledText(line, "dim"), wrap=False)


def _print_other_places(finding_group: FindingGroup, page: Page, language: str) -> None:
    if finding_group.others:
        page.line(StyledText(f"{finding_group.heading(language)}{colon(language).rstrip()}", "bold"))
    for place in finding_group.places(language):
        page.line(StyledText(clean_line(place), "dim"), wrap=False, indent=4)


def _print_briefly(finding: Finding, page: Page, language: str) -> None:
    certainty = word(finding.certainty.value, language)
    place = f" ({clean_line(finding.spans[0].path)}:{finding.spans[0].line})" if finding.spans else ""
    head = StyledText.assemble((clean_line(finding.hazard), _LEVEL_STYLE[finding.level]), f" ({certainty})")
    text = clean_line(finding.title.in_language(language))
    page.line(head.append(f"{colon(language)}{text}{place}"), indent=2)
    for confirm in finding.remaining_confirmations[:1]:
        sentence = f"{word('confirm', language)}{colon(language)}{clean_line(confirm.in_language(language))}"
        page.line(StyledText(sentence, "dim"), indent=4)


def _print_similar(threads: tuple[SimilarThread, ...], page: Page, language: str) -> None:
    page.line()
    page.line(StyledText(f"{word('similar', language)}{colon(language).rstrip()}", "bold"))
    for thread in threads:
        page.line(StyledText(clean_line(thread.address)), wrap=False, indent=2)
        for text, style in ((clean_title(thread), ""), (resolution_text(thread, language), "dim")):
            if text:
                page.line(StyledText(text, style), indent=4)


def _styled_label(name: str, style: str, language: str) -> StyledText:
    return StyledText(f"{word(name, language)}{colon(language)}", style)


def _print_fix(fix: Fix, page: Page, language: str) -> None:
    how = word(fix.applicability.value, language)
    how = f"（{how}）{colon(language)}" if language == "zh" else f" ({how}){colon(language)}"
    page.line(StyledText.assemble((word("fix", language), "bold green"), how, _clean_text(fix.title, language)))
    _print_diff(clean(fix.diff), page)
    if command := how_to_apply(fix):
        page.line(StyledText(f"    {word('apply', language)}{colon(language)}{command}", "cyan"), wrap=False)


def _print_diff(diff: str, page: Page) -> None:
    for line in diff.splitlines():
        colour = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        page.line(StyledText(f"    {line}", colour), wrap=False)


def _print_sections(sections: Iterable[Section], page: Page) -> None:
    for section in sections:
        page.line()
        page.line(StyledText(section.title, "bold"))
        for sentence in section.said:
            page.line(StyledText(sentence), indent=2)
        _print_diff(section.diff, page)


def _print_coverage(report: Report, page: Page, language: str) -> None:
    if report.covered:
        page.line()
        page.rule(word("covered", language))
        for text in report.covered:
            page.line(StyledText(_clean_text(text, language)))
    if report.skipped:
        page.line()
        page.rule(word("skipped", language))
        for skipped in grouped_skipped(report):
            what = (_clean_text(skipped.what, language), "bold")
            page.line(StyledText.assemble(what, colon(language), _clean_text(skipped.why, language)))
