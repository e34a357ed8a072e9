"""The tables of a comparison: one of before and after, one of what came and went."""

from __future__ import annotations

from gonogo.finding import Text
from gonogo.finding.rehearsal import RehearsalComparison, ReportDifference
from gonogo.report.table import Table
from gonogo.report.untrusted import clean_line

_TITLE = Text("Before and after", "之前与之后")
_COLUMNS = (Text("", ""), Text("before", "之前"), Text("after", "之后"), Text("change", "变化"))
_FILES = Text("before: {before}; after: {after}", "之前：{before}；之后：{after}")
_THIS = Text("this rehearsal", "这次排练")
_WORSE = Text("worse", "变差")
_BETTER = Text("better", "变好")
_MOVED = Text("New and gone", "新出现与已消失")
_KINDS = {
    "finding": Text("finding", "发现"),
    "assumption": Text("assumption", "假设"),
    "covered": Text("covered", "已检查"),
    "skipped": Text("not covered", "未检查"),
}
_NEW, _GONE = Text("new", "新出现"), Text("gone", "已消失")
_MAX_SHOWN = 12
_MORE = Text("and {count} more, in --format json", "另有 {count} 条，见 --format json")


def comparison_tables(comparison: RehearsalComparison, language: str) -> list[Table]:
    """Those that have rows."""
    return [table for table in (_changes(comparison, language), _moved(comparison, language)) if table.rows]


def _changes(comparison: RehearsalComparison, language: str) -> Table:
    judgements = {"worse": _WORSE.in_language(language), "better": _BETTER.in_language(language), "": ""}
    rows = []
    for change in comparison.changes:
        moved = [change.change.in_language(language), judgements[change.judged]]
        cells = (change.what, change.before, change.after)
        comma = "，" if language == "zh" else ", "
        rows.append((*(clean_line(cell.in_language(language)) for cell in cells), comma.join(filter(None, moved))))
    columns = tuple(column.in_language(language) for column in _COLUMNS)
    after = clean_line(comparison.after) or _THIS.in_language(language)
    note = _FILES.format(before=clean_line(comparison.before), after=after).in_language(language)
    return Table(_TITLE.in_language(language), columns, tuple(rows), note=note)


def _moved(comparison: RehearsalComparison, language: str) -> Table:
    def row(one: ReportDifference) -> tuple[str, str, str]:
        change = (_NEW if one.is_new else _GONE).in_language(language)
        return change, _KINDS[one.kind].in_language(language), clean_line(one.what.in_language(language))

    shown = comparison.differences[:_MAX_SHOWN]
    more = len(comparison.differences) - len(shown)
    note = _MORE.format(count=more).in_language(language) if more else ""
    return Table(_MOVED.in_language(language), ("", "", ""), tuple(map(row, shown)), note=note)
