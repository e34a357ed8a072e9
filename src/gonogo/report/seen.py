"""What a command saw beside findings: a line that says what it was, and its tables. A report has one such thing."""

from __future__ import annotations

from gonogo.finding import Report
from gonogo.report.bisection import bisection_table
from gonogo.report.environment import environment_tables
from gonogo.report.guarded import guarded_summary, guarded_tables
from gonogo.report.plan import plan_summary, plan_tables
from gonogo.report.rehearsal import rehearsal_summary, rehearsal_tables
from gonogo.report.table import Table


def summary_of(report: Report, language: str) -> str:
    """What was rehearsed, guarded or planned, in a line; empty for a report of nothing such."""
    if report.rehearsal is not None:
        return rehearsal_summary(report.rehearsal, language)
    if report.guarded_run is not None:
        return guarded_summary(report.guarded_run, language)
    return plan_summary(report.plan, language) if report.plan is not None else ""


def tables_of(report: Report, language: str) -> list[Table]:
    """All tables that there are rows for, in the order of reading."""
    if report.rehearsal is not None:
        return rehearsal_tables(report.rehearsal, language)
    if report.guarded_run is not None:
        return guarded_tables(report.guarded_run, language)
    if report.plan is not None:
        return plan_tables(report.plan, language)
    if report.environment is not None:
        return environment_tables(report.environment, language)
    return [bisection_table(report.bisection, language)] if report.bisection is not None else []
