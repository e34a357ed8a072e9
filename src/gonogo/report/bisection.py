"""The table of a bisection, made from :attr:`Report.bisection`; a renderer only draws it."""

from __future__ import annotations

from packaging.version import Version

from gonogo.finding import Text
from gonogo.finding.bisection import Bisection
from gonogo.report.table import Table
from gonogo.report.untrusted import clean_line

_TITLE = Text("Releases of {package} that were tried", "试过的 {package} 版本")
_COLUMNS = (
    Text("version", "版本"),
    Text("verdict", "结论"),
    Text("counted as", "视为"),
    Text("hazards", "隐患"),
    Text("seconds", "秒"),
)
_JUDGED = {"good": Text("good", "好"), "bad": Text("bad", "坏"), "skipped": Text("skipped", "跳过")}


def bisection_table(bisection: Bisection, language: str) -> Table:
    """The releases that were tried, oldest first."""
    rows = []
    for trial in sorted(bisection.tried, key=lambda trial: Version(trial.version)):
        judged = _JUDGED.get(trial.judged)
        rows.append(
            (
                clean_line(trial.version),
                trial.verdict or "-",
                judged.in_language(language) if judged is not None else "-",
                clean_line(", ".join(dict.fromkeys(trial.hazards))),
                f"{trial.seconds:.1f}" if trial.seconds is not None else "-",
            )
        )
    return Table(
        _TITLE.format(package=clean_line(bisection.package)).in_language(language),
        tuple(column.in_language(language) for column in _COLUMNS),
        tuple(rows),
        frozenset({4}),
    )
