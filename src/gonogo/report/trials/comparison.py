"""The tables of a comparison: one of before and after, one of what appeared and disappeared."""

from __future__ import annotations

from gonogo.finding import Text, translated
from gonogo.finding.rehearsal import RehearsalComparison, ReportDifference
from gonogo.report.table import Table
from gonogo.report.untrusted import clean_line

_TITLE = translated("Before and after")
_COLUMNS = (Text("", ""), translated("before"), translated("after"), translated("change"))
_COMPARED_FILES = translated("before: {before}; after: {after}")
_THIS_REHEARSAL = translated("this rehearsal")
_WORSE = translated("worse")
_BETTER = translated("better")
_DIFFERENCES_TITLE = translated("New, and no longer reported")
_DIFFERENCE_KIND_TEXTS = {
    "finding": translated("finding"),
    "assumption": translated("assumption"),
    "covered": translated("covered"),
    "skipped": translated("not covered"),
}
_NEW, _GONE = translated("new"), translated("gone")
_MAX_SHOWN = 12
_AND_MORE_IN_JSON = translated("and {count} more, in --format json")


def comparison_tables(comparison: RehearsalComparison, language: str) -> list[Table]:
    """The tables that have rows."""
    return [
        table
        for table in (_changes_table(comparison, language), _differences_table(comparison, language))
        if table.rows
    ]


def _changes_table(comparison: RehearsalComparison, language: str) -> Table:
    judgements = {"worse": _WORSE.in_language(language), "better": _BETTER.in_language(language), "": ""}
    rows = []
    for change in comparison.changes:
        moved = [change.change.in_language(language), judgements[change.judged]]
        cells = (change.what, change.before, change.after)
        comma = "，" if language == "zh" else ", "
        rows.append((*(clean_line(cell.in_language(language)) for cell in cells), comma.join(filter(None, moved))))
    columns = tuple(column.in_language(language) for column in _COLUMNS)
    after = clean_line(comparison.after) or _THIS_REHEARSAL.in_language(language)
    note = _COMPARED_FILES.format(before=clean_line(comparison.before), after=after).in_language(language)
    return Table(_TITLE.in_language(language), columns, tuple(rows), note=note)


def _differences_table(comparison: RehearsalComparison, language: str) -> Table:
    def difference_row(difference: ReportDifference) -> tuple[str, str, str]:
        change = (_NEW if difference.is_new else _GONE).in_language(language)
        return (
            change,
            _DIFFERENCE_KIND_TEXTS[difference.kind].in_language(language),
            clean_line(difference.what.in_language(language)),
        )

    shown = comparison.differences[:_MAX_SHOWN]
    more = len(comparison.differences) - len(shown)
    note = _AND_MORE_IN_JSON.format(count=more).in_language(language) if more else ""
    return Table(_DIFFERENCES_TITLE.in_language(language), ("", "", ""), tuple(map(difference_row, shown)), note=note)
