"""A report as it may be shown to others: without the secrets that a program, a log or a launch had in it."""

from __future__ import annotations

from msgspec.structs import replace

from gonogo.finding import Applicability, Finding, Fix, Report
from gonogo.finding.redaction import redact, redacted


def without_secrets(report: Report) -> Report:
    """The report with every secret in its text masked.

    A fix whose edits have a secret in them is one for a person: edits are bytes to be written, which must be whole.
    """
    findings = tuple(_without_edits(finding) for finding in report.findings)
    return redacted(replace(report, findings=findings) if findings != report.findings else report)


def _without_edits(finding: Finding) -> Finding:
    fixes = tuple(
        Fix(fix.title, Applicability.MANUAL, fix.diff)
        if any(_has_secret(one.before, one.after) for one in fix.edits)
        else fix
        for fix in finding.fixes
    )
    return finding if fixes == finding.fixes else replace(finding, fixes=fixes)


def _has_secret(*parts: bytes) -> bool:
    texts = [part.decode("utf-8", "surrogateescape") for part in parts]
    return any(redact(text) != text for text in texts)
