"""Links a finding to its moment in the chart of memory over time."""

from __future__ import annotations

from gonogo.finding import Finding, Report, Severity, Text, translated
from gonogo.finding.rehearsal import MemoryTimeline, RehearsedRank
from gonogo.report.html.charts import timelines
from gonogo.report.html.markup import element, escape_line

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
            point, said = found
            label = escape_line(said.in_language(language))
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
