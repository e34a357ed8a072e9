"""The report's sections in one language, in reading order: verdict, findings, charts, tables, coverage."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from gonogo.finding import Finding, Report, Severity, Text, Verdict, translated
from gonogo.finding.finding_groups import group_findings, grouped_notes, grouped_skipped
from gonogo.finding.log_answer import SimilarThread
from gonogo.finding.rehearsal import MemoryTimeline, RehearsedRank
from gonogo.finding.trials.bisection import Bisection, TriedRelease
from gonogo.report.answer.headline import Figure, badge, make_headline
from gonogo.report.html.charts import has_modules, timelines
from gonogo.report.html.curves import curve_sections
from gonogo.report.html.ends import guarded_sections, log_sections
from gonogo.report.html.finding_markup import diff_markup, finding_markup
from gonogo.report.html.lanes import lanes_section
from gonogo.report.html.lengths import lengths_section
from gonogo.report.html.markup import element, escape_line, format_sentence, heading, link
from gonogo.report.html.over_time import over_time_section
from gonogo.report.html.scatter import scatter_section
from gonogo.report.html.what_if import what_if_section
from gonogo.report.seen import evidence_tables, leading_tables, report_summary
from gonogo.report.similar import clean_title, resolution_text
from gonogo.report.table import Table
from gonogo.report.trials.comparison import comparison_tables
from gonogo.report.trials.cure import cure_sections
from gonogo.report.trials.model_reading import reader_sections
from gonogo.report.trials.plan import strategy_reasons
from gonogo.report.words import clue_line, colon, finding_counts_text, word

_SHOW_END_LABEL = translated("show where it ended")
_SHOW_PEAK = translated("show the peak of this module")


def moment_button(finding: Finding, report: Report, language: str) -> str:
    """A button that shows the moment: where the rank failed that way, or the peak of the finding's module."""
    if report.rehearsal is None:
        return ""
    ranks = {rank.rank: rank for rank in report.rehearsal.ranks}
    for number, (rank, timeline) in enumerate(timelines(report)):
        if finding.ranks and rank not in finding.ranks:
            continue
        found = _decisive_moment(finding, ranks[rank], timeline)
        if found is not None:
            point, text = found
            label = escape_line(text.in_language(language))
            return element(
                "button", label, type="button", klass="moment", data_timeline=str(number), data_point=str(point)
            )
    return ""


def _decisive_moment(finding: Finding, rank: RehearsedRank, timeline: MemoryTimeline) -> tuple[int, Text] | None:
    if finding.severity is Severity.ERROR and finding.ranks and rank.outcome not in ("completed", "interrupted"):
        return len(timeline.phases) - 1, _SHOW_END_LABEL
    if not finding.module:
        return None
    held = [sum(column) for column in zip(*timeline.by_category.values(), strict=True)]
    within = [point for point, module in enumerate(timeline.modules) if _is_submodule(module, finding.module)]
    return (max(within, key=held.__getitem__), _SHOW_PEAK) if within else None


def _is_submodule(module: str, parent_module: str) -> bool:
    return module == parent_module or module.startswith(f"{parent_module}.")


_TITLE = translated("{package}, release by release")
_JUDGEMENT_WORDS = {"good": translated("good"), "bad": translated("bad"), "skipped": translated("skipped")}
_CHANGES = {"breaks": translated("breaks"), "mends": translated("fixes it")}

_OVER_TIME = translated("Memory over time")
_CHART_HINT = translated(
    "Drag to zoom, double-click to reset; keyboard: arrows, + and -, 0. Each point is the maximum over a "
    "range of allocations; the x axis counts allocations, since a virtual GPU has no clock."
)
_BY_MODULE = translated("Memory at the peak, by part")
_MODULE_HINT_FOR_DEVICE = translated("For the device selected above. Select a part to see what it consists of.")
_MODULE_HINT = translated("Select a part to see what it consists of.")
_DEVICE = translated("Device")
_MAX_SHORT_VALUE_CHARS = 40
"""Figures of up to this many characters are shown large; longer ones are sentences."""
_MAX_SHORT_CELL_LENGTH = 24
"""Cells of up to this many characters are never wrapped: "node-a" would else be one letter wide on a phone."""
_MAX_SHORT_TABLE_ROWS = 40
"""Tables of up to this many rows are shown whole: longer ones, such as 512 ranks, scroll."""
_WHY_TITLE = translated("Why")


def sections(report: Report, language: str) -> Iterator[str]:
    """The HTML of each section that has content."""
    yield element("header", *_answer_markup(report, language))
    if report.comparison is not None:
        for table in comparison_tables(report.comparison, language):
            yield _table_markup(table)
        yield from curve_sections(report.comparison, language)
    if report.findings:
        together = enumerate(group_findings(report.findings))
        found = (
            finding_markup(alike, language, number, moment_button(alike.finding, report, language))
            for number, alike in together
        )
        yield element("section", *found, klass="findings")
    for table in leading_tables(report, language):
        yield _table_markup(table)
    if report.clues:
        listed = element("ul", *(element("li", format_sentence(clue_line(clue, language))) for clue in report.clues))
        yield element("section", heading(2, word("clues", language)), listed)
    if report.similar:
        threads = (_thread_markup(thread, language) for thread in report.similar)
        yield element("section", heading(2, word("similar", language)), element("ul", *threads))
    cured = cure_sections(report.cure, language) if report.cure is not None else ()
    for section in (*cured, *reader_sections(report, language)):
        items = (element("li", escape_line(sentence)) for sentence in section.said)
        parts = [heading(2, section.title), *([element("ul", *items)] if section.said else [])]
        yield element("section", *parts, *([diff_markup(section.diff, language)] if section.diff else []))
    if report.rehearsal is not None and report.rehearsal.divergence is not None:
        yield lanes_section(report.rehearsal.divergence, language)
    yield from _chart_sections(report, language)
    yield what_if_section(report, language)
    if report.log is not None:
        yield from log_sections(report.log, language)
    if report.guarded_run is not None:
        yield from guarded_sections(report.guarded_run, language)
    if report.plan is not None:
        yield from scatter_section(report.plan, language)
        yield from lengths_section(report.plan, language)
    if report.bisection is not None:
        yield releases_section(report.bisection, language)
    for table in evidence_tables(report, language):
        yield _table_markup(table)
    if report.plan is not None:
        for name, sentences in strategy_reasons(report.plan, language):
            listed = element("ul", *(element("li", escape_line(sentence)) for sentence in sentences))
            title = f"{_WHY_TITLE.in_language(language)}{colon(language)}{name}"
            yield element("section", heading(2, title), listed)
    if report.covered:
        listed = element("ul", *(element("li", format_sentence(one.in_language(language))) for one in report.covered))
        yield element("section", heading(2, word("covered", language)), listed)
    if report.skipped:
        rows = (
            element("dt", format_sentence(one.what.in_language(language)))
            + element("dd", format_sentence(one.why.in_language(language)))
            for one in grouped_skipped(report)
        )
        yield element("section", heading(2, word("skipped", language)), element("dl", *rows))


def _thread_markup(thread: SimilarThread, language: str) -> str:
    settled = resolution_text(thread, language)
    parts = [link(thread.address), escape_line(clean_title(thread)), escape_line(settled)]
    return element("li", " · ".join(part for part in parts if part))


def _answer_markup(report: Report, language: str) -> Iterator[str]:
    """The answer, visible without scrolling: verdict, reason, figures, the next command."""
    answer = make_headline(report)
    kind = Verdict.NO_GO if report.regressed else report.verdict
    verdict = element("span", escape_line(badge(report, language)), klass=f"verdict {kind.value.lower()}")
    scope = [element("span", escape_line(answer.scope.in_language(language)), klass="scope")] if answer.scope else []
    command = element("span", escape_line(f"gonogo {report.command}"), klass="of")
    yield element("h1", " ".join([verdict, *scope, command]))
    yield element("p", format_sentence(answer.reason.in_language(language)), klass="reason")
    if answer.figures:
        yield element("dl", *(_figure_tile(figure, language) for figure in answer.figures), klass="tiles")
    what = element("span", escape_line(answer.next.what.in_language(language)), klass="remark")
    label = element("span", escape_line(word("next", language)), klass="label")
    todo = (
        [label, " ", element("code", escape_line(answer.next.command)), " ", what]
        if answer.next.command
        else [label, " ", what]
    )
    yield element("p", *todo, klass="next")
    launched = report.rehearsal or report.guarded_run
    if launched is not None and launched.command:
        yield element("p", element("code", escape_line(shlex.join(launched.command))), klass="remark")
    for line in (finding_counts_text(report, language), report_summary(report, language)):
        if line:
            yield element("p", escape_line(line), klass="remark")
    for note in grouped_notes(answer.shown):
        yield element("p", format_sentence(note.in_language(language)), klass="remark")


def _figure_tile(figure: Figure, language: str) -> str:
    """A large figure, with a bar if it is a share of something."""
    parts = [element("dt", escape_line(figure.name.in_language(language)))]
    text = figure.value.in_language(language)
    value = escape_line(text)
    if figure.share is not None:
        over = {"low": "1", "high": "99", "optimum": "0"} if figure.share > 100 else {}
        value += element("meter", min="0", max="100", value=f"{figure.share:.0f}", aria_hidden="true", **over)
    parts.append(element("dd", value))
    return element("div", *parts, klass="tile" if len(text) < _MAX_SHORT_VALUE_CHARS else "tile long")


def _chart_sections(report: Report, language: str) -> Iterator[str]:
    drawn = timelines(report)
    if drawn:
        options = ((str(number), f"rank {rank}, {one.device}") for number, (rank, one) in enumerate(drawn))
        yield over_time_section(_OVER_TIME, _DEVICE, options, _CHART_HINT, language)
    if has_modules(report):
        yield element(
            "section",
            heading(2, _BY_MODULE.in_language(language)),
            element("div", klass="icicle"),
            element("p", klass="part", aria_live="polite"),
            element(
                "p",
                escape_line((_MODULE_HINT_FOR_DEVICE if drawn else _MODULE_HINT).in_language(language)),
                klass="remark hint",
            ),
            klass="drawn",
        )


def _table_markup(table: Table) -> str:
    head = element(
        "tr",
        *(_heading_cell(name, number in table.numeric - table.shares) for number, name in enumerate(table.columns)),
    )
    body = (
        element(
            "tr",
            *(_body_cell(cell, number in table.numeric, number in table.shares) for number, cell in enumerate(row)),
        )
        for row in table.rows
    )
    drawn = element("table", element("thead", head), element("tbody", *body))
    klass = "wide long" if len(table.rows) > _MAX_SHORT_TABLE_ROWS else "wide"
    parts = [heading(2, table.title), element("div", drawn, klass=klass, tabindex="0", role="group",
                                              aria_label=table.title)]  # fmt: skip
    if table.note:
        parts.append(element("p", escape_line(table.note), klass="remark"))
    return element("section", *parts)


def _heading_cell(name: str, is_numeric: bool) -> str:
    return (
        element("th", escape_line(name), scope="col", klass="figure" if is_numeric else False)
        if name
        else element("td")
    )


def _body_cell(cell: str, is_numeric: bool, is_share: bool) -> str:
    shown = escape_line(cell)
    if is_share and cell.endswith("%"):
        share = cell.removesuffix("%").strip()
        over = {"low": "1", "high": "99", "optimum": "0"} if float(share) > 100 else {}  # above 100 %: red
        bar = element("meter", min="0", max="100", value=share, aria_hidden="true", **over)
        return element("td", bar, element("span", shown), klass="share")  # equal width of the figures aligns the bars
    return element(
        "td", shown, klass="figure" if is_numeric and not is_share else len(cell) <= _MAX_SHORT_CELL_LENGTH and "short"
    )


def releases_section(bisection: Bisection, language: str) -> str:
    """The section about the releases that a bisection tried."""
    title = _TITLE.format(package=bisection.package).in_language(language)
    ordered = sorted(bisection.tried, key=_release_sort_key)
    listed = element("ol", *(_release_markup(one, bisection, language) for one in ordered), klass="releases")
    return element("section", heading(2, title), element("div", listed, klass="wide", tabindex="0", role="group",
                                                         aria_label=title))  # fmt: skip


def _release_sort_key(release: TriedRelease) -> tuple[Version, str]:
    try:
        return Version(release.version), ""
    except InvalidVersion:
        return Version("0"), release.version


def _release_markup(release: TriedRelease, bisection: Bisection, language: str) -> str:
    parts = [
        element("strong", escape_line(release.version)),
        element("span", escape_line(_JUDGEMENT_WORDS[release.judged].in_language(language))),
    ]
    if release.version == bisection.version and bisection.change in _CHANGES:
        parts.append(element("mark", escape_line(_CHANGES[bisection.change].in_language(language))))
    return element("li", *parts, klass=release.judged)
