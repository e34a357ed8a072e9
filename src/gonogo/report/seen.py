"""What a command observed besides findings: a one-line summary and its tables. A report has one such part."""

from __future__ import annotations

from gonogo.finding import Report, translated
from gonogo.finding.trials.bisection import Bisection
from gonogo.report.as_run import as_run_table
from gonogo.report.environment_tables import environment_tables
from gonogo.report.guarded import guarded_summary, guarded_tables
from gonogo.report.rehearsal import rehearsal_summary, rehearsal_tables
from gonogo.report.table import Table
from gonogo.report.trials.also import also_table
from gonogo.report.trials.cure import cure_summary, cure_tables
from gonogo.report.trials.plan import plan_summary, plan_tables
from gonogo.report.untrusted import clean_line


def report_summary(report: Report, language: str) -> str:
    """One line on what was rehearsed, guarded or planned; empty for other reports."""
    if report.rehearsal is not None:
        return rehearsal_summary(report.rehearsal, language)
    if report.guarded_run is not None:
        return guarded_summary(report.guarded_run, language)
    if report.cure is not None:
        return cure_summary(report.cure, language)
    return plan_summary(report.plan, language) if report.plan is not None else ""


def leading_tables(report: Report, language: str) -> list[Table]:
    """Tables that come before the findings: what was run."""
    table = as_run_table(report.rehearsal, language) if report.rehearsal is not None else None
    others = also_table(report, language)
    return [one for one in (others, table) if one is not None and one.rows]


def evidence_tables(report: Report, language: str) -> list[Table]:
    """All tables that have rows, in reading order."""
    if report.rehearsal is not None:
        return rehearsal_tables(report.rehearsal, language)
    if report.guarded_run is not None:
        return guarded_tables(report.guarded_run, language)
    if report.plan is not None:
        return plan_tables(report.plan, language)
    if report.cure is not None:
        return cure_tables(report.cure, language)
    if report.environment is not None:
        return environment_tables(report.environment, language)
    return [_bisection_table(report.bisection, language)] if report.bisection is not None else []


_RELEASES_TRIED_TITLE = translated("Releases of {package} tried")
_COLUMNS = (
    translated("version"),
    translated("verdict"),
    translated("counted as"),
    translated("hazards"),
    translated("seconds"),
)
_JUDGEMENT_WORDS = {"good": translated("good"), "bad": translated("bad"), "skipped": translated("skipped")}


def _bisection_table(bisection: Bisection, language: str) -> Table:
    """The releases that were tried, oldest first."""
    from packaging.version import Version

    rows = []
    for trial in sorted(bisection.tried, key=lambda trial: Version(trial.version)):
        judged = _JUDGEMENT_WORDS.get(trial.judged)
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
        _RELEASES_TRIED_TITLE.format(package=clean_line(bisection.package)).in_language(language),
        tuple(column.in_language(language) for column in _COLUMNS),
        tuple(rows),
        frozenset({4}),
    )
