"""The report as JSON: schema ``gonogo.report/1``. Keys may be added to it, but none is ever removed."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from gonogo.finding import Finding, Fix, Report
from gonogo.finding.log_answer import Answer, Clue, SimilarThread
from gonogo.finding.rehearsal import RehearsalComparison, downsample_timeline
from gonogo.report.answer.headline import make_headline, verdict_line
from gonogo.report.words import how_to_apply

SCHEMA = "gonogo.report/1"
_NUMBER_LIST_PATTERN = re.compile(r"\[\n\s+(-?\d+(?:,\n\s+-?\d+){16,})\n\s+\]")
"""A long list of numbers as indented JSON; it can't match inside a string, where newlines are escaped."""
_UNPRINTABLE_PATTERN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def to_json(report: Report, language: str) -> str:
    """The report as a JSON document that ends with a newline; sentences are in ``language``.

    Strings are verbatim, except that characters which a terminal would interpret are written as ``\\uXXXX``.
    """
    return to_json_text(report_object(report, language))


def to_json_text(value: dict[str, Any]) -> str:
    """The JSON text of an object with a trailing newline, free of characters that a terminal would interpret."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    text = _NUMBER_LIST_PATTERN.sub(lambda match: f"[{' '.join(match[1].split())}]", text)
    return _UNPRINTABLE_PATTERN.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def report_object(report: Report, language: str) -> dict[str, Any]:
    """The report as plain dicts and lists, with the keys of the schema."""
    return {
        "schema": SCHEMA,
        "command": report.command,
        "verdict": report.verdict.value,
        "answer": _answer_object(report, language),
        "findings": [_finding_object(finding, language) for finding in report.findings],
        "covered": [text.in_language(language) for text in report.covered],
        "skipped": [
            {
                "what": skipped.what.in_language(language),
                "why": skipped.why.in_language(language),
                **({"remedy": msgspec.to_builtins(skipped.remedy)} if skipped.remedy is not None else {}),
            }
            for skipped in report.skipped
        ],
        "notes": [text.in_language(language) for text in report.notes],
        **({"clues": [_clue_object(clue, language) for clue in report.clues]} if report.log is not None else {}),
        **({"similar": [_thread_object(one, language) for one in report.similar]} if report.log is not None else {}),
        **({"upstream": msgspec.to_builtins(report.upstream)} if report.upstream else {}),
        **({"pack": report.pack} if report.pack else {}),
        **{name: value for name, value in _rehearsal_json(report, language).items() if value is not None},
    }


def _answer_object(report: Report, language: str) -> dict[str, Any]:
    """The answer that opens the report."""
    answer = make_headline(report)
    return {
        "says": verdict_line(report, language),
        "reason": answer.reason.in_language(language),
        "next": answer.next.command,
        "next_does": answer.next.what.in_language(language),
        **({"next_purpose": answer.next.purpose.value} if answer.next.purpose is not None else {}),
        **({"next_details": answer.next.details} if answer.next.details else {}),
        "figures": [
            {"name": figure.name.in_language(language), "value": figure.value.in_language(language)}
            for figure in answer.figures
        ],
        **({"regressed": [text.in_language(language) for text in report.regressed]} if report.regressed else {}),
        **(_log_answer_object(report.answer, language) if report.answer is not None else {}),
    }


def _log_answer_object(answer: Answer, language: str) -> dict[str, Any]:
    """The parts of the sentence about a log."""
    return {
        "because": answer.because.in_language(language),
        "at": answer.at.in_language(language) if answer.at is not None else None,
        "change": answer.change.in_language(language) if answer.change is not None else None,
        "sure": answer.sure,
        "hazard": answer.hazard or None,
    }


def _clue_object(clue: Clue, language: str) -> dict[str, Any]:
    return {"text": clue.text.in_language(language), "places": msgspec.to_builtins(clue.places)}


def _rehearsal_json(report: Report, language: str) -> dict[str, Any]:
    rehearsal = msgspec.to_builtins(report.rehearsal)
    if report.rehearsal is not None:
        del rehearsal["gpus"], rehearsal["step_scaling"]
        for rank, shown in zip(report.rehearsal.ranks, rehearsal["ranks"], strict=True):
            del shown["timelines"]  # thousands of numbers that are of use only as a chart
            if rank.timelines:
                shown["memory_over_time"] = [
                    msgspec.to_builtins(downsample_timeline(timeline)) for timeline in rank.timelines
                ]
    return {
        "rehearsal": rehearsal,
        "plan": _omit_fields(msgspec.to_builtins(report.plan), "files"),
        "log": _omit_fields(msgspec.to_builtins(report.log), "excerpts", "ends"),
        "failure": msgspec.to_builtins(report.failure),
        "environment": report.environment.to_json() if report.environment is not None else None,
        "bisection": msgspec.to_builtins(report.bisection),
        "cure": msgspec.to_builtins(report.cure),
        "reading": msgspec.to_builtins(report.reading),
        "guarded_run": _omit_fields(msgspec.to_builtins(report.guarded_run), "over_time"),
        "comparison": _comparison_object(report.comparison, language) if report.comparison is not None else None,
    }


def _comparison_object(comparison: RehearsalComparison, language: str) -> dict[str, Any]:
    def difference_texts(kind: str, is_new: bool) -> list[str]:
        found = (one for one in comparison.differences if one.kind == kind and one.is_new is is_new)
        return [one.what.in_language(language) for one in found]

    return {
        "judged": comparison.judged,
        "before": {"path": comparison.before, "verdict": comparison.before_verdict},
        "after": {"path": comparison.after or None, "verdict": comparison.after_verdict},
        "peak_growth": comparison.growth,
        "reasons": [reason.in_language(language) for reason in comparison.reasons],
        "changes": [
            {
                "what": change.what.in_language(language),
                "before": change.before.in_language(language),
                "after": change.after.in_language(language),
                "change": change.change.in_language(language),
                "judged": change.judged or None,
            }
            for change in comparison.changes
        ],
        **{
            f"{kind}s" if kind in ("finding", "assumption") else kind: {
                "new": difference_texts(kind, True),
                "gone": difference_texts(kind, False),
            }
            for kind in ("finding", "assumption", "covered", "skipped")
        },
    }


def _omit_fields(fields: dict[str, Any] | None, *names: str) -> dict[str, Any] | None:
    """The fields without those that only a page shows."""
    return None if fields is None else {name: value for name, value in fields.items() if name not in names}


def _thread_object(thread: SimilarThread, language: str) -> dict[str, Any]:
    return {
        "address": thread.address,
        "title": thread.title,
        "settled": thread.settled.in_language(language) if thread.settled else None,
        "hazard": thread.hazard or None,
        "likeness": thread.likeness,
    }


def _finding_object(finding: Finding, language: str) -> dict[str, Any]:
    return {
        "hazard": finding.hazard,
        "certainty": finding.certainty.value,
        "severity": finding.level.value,
        "title": finding.title.in_language(language),
        "cause": finding.cause.in_language(language),
        "cure": [step.in_language(language) for step in finding.cure],
        "spans": [
            {
                "path": span.path,
                "line": span.line,
                "column": span.column,
                "end_line": span.end_line or None,
                "end_column": span.end_column or None,
                "text": span.text,
                "label": span.label.in_language(language) if span.label else None,
            }
            for span in finding.spans
        ],
        "rank": finding.ranks[0] if finding.ranks else None,
        "ranks": list(finding.ranks),
        "module": finding.module,
        "parameter": finding.parameter,
        "fixes": [_fix_object(fix, language) for fix in finding.fixes],
        "sources": list(finding.sources),
        "confirm": [text.in_language(language) for text in finding.remaining_confirmations],
    }


def _fix_object(fix: Fix, language: str) -> dict[str, Any]:
    """A fix with its edits. Bytes that are not UTF-8 become lone surrogates, as with ``surrogateescape``."""
    return {
        "title": fix.title.in_language(language),
        "applicability": fix.applicability.value,
        "diff": fix.diff,
        "apply": how_to_apply(fix),
        "edits": [
            {
                "path": edit.path,
                "start": edit.start,
                "end": edit.end,
                "before": edit.before.decode("utf-8", "surrogateescape"),
                "after": edit.after.decode("utf-8", "surrogateescape"),
            }
            for edit in fix.edits
        ],
    }
