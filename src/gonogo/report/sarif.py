"""The report as SARIF 2.1.0, which GitHub code scanning, Azure DevOps, Jenkins and editors show beside the code."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from gonogo._version import __version__
from gonogo.finding import Edit, Finding, Fix, Report, Severity, Skipped, Span
from gonogo.report.annotation import annotation_severity, annotation_text, path_from_repository_root
from gonogo.report.answer.headline import make_headline, verdict_line
from gonogo.report.json_ import to_json_text
from gonogo.report.similar import thread_line
from gonogo.report.trials.model_reading import reader_lines
from gonogo.report.untrusted import clean, clean_line
from gonogo.report.words import colon

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
_LANGUAGE = {"en": "en-US", "zh": "zh-CN"}
_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_URL_PATTERN = re.compile(r"https?://[^\s/]+(?:/\S*)?")


def to_sarif(report: Report, language: str) -> str:
    """The report as a SARIF log of one run."""
    return to_json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [_sarif_run(report, language)]})


def _sarif_run(report: Report, language: str) -> dict[str, Any]:
    rules: dict[str, int] = {}
    first: list[Finding] = []
    for finding in report.findings:
        if (name := _rule_id(finding)) not in rules:
            rules[name] = len(first)
            first.append(finding)
    prints = _fingerprints(report.findings)
    answer = make_headline(report)
    return {
        "tool": {
            "driver": {
                "name": "gonogo",
                "version": __version__,
                "semanticVersion": __version__,
                "language": _LANGUAGE.get(language, "en-US"),
                "rules": [_sarif_rule(finding, language) for finding in first],
                "notifications": [
                    {"id": name} for name in ("note", "skipped", *(["similar"] if report.similar else []))
                ],
            }
        },
        "language": _LANGUAGE.get(language, "en-US"),
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "the root of the repository"}}},
        "invocations": [_sarif_invocation(report, language)],
        "results": [
            _sarif_result(finding, rules[_rule_id(finding)], fingerprint, language)
            for finding, fingerprint in zip(report.findings, prints, strict=True)
        ],
        "properties": {
            "command": clean_line(report.command),
            "verdict": report.verdict.value,
            "answer": clean(verdict_line(report, language)),
            "reason": clean(answer.reason.in_language(language)),
            "next": clean(answer.next.to_text(language)),
            "covered": [clean(text.in_language(language)) for text in report.covered],
        },
    }


def _rule_id(finding: Finding) -> str:
    return clean_line(finding.hazard)


def _sarif_rule(finding: Finding, language: str) -> dict[str, Any]:
    """The hazard as a rule. A rule applies to all its findings, so causes with concrete values are left out."""
    title = clean_line(finding.title.in_language(language))
    page = f"gonogo explain {_rule_id(finding)}"
    sources = [url for url in map(_to_url, finding.sources) if url]
    cure = [clean_line(step.in_language(language)) for step in finding.cure]
    return {
        "id": _rule_id(finding),
        "shortDescription": {"text": title},
        "fullDescription": {"text": f"{title} ({page})"},
        "help": {"text": "\n".join([*(f"- {step}" for step in cure), *sources, page])},
        **({"helpUri": sources[0]} if sources else {}),
        "defaultConfiguration": {"level": _LEVEL[annotation_severity(finding)]},
        "properties": {"sources": sources},
    }


def _to_url(source: str) -> str | None:
    """The source as a URL with invalid characters escaped; None if it is not a URL."""
    # "%" is kept: sources are copied URLs that are already escaped.
    text = quote(clean_line(source), safe="%:/?#@!$&'()*+,;=~-._")
    return text if _URL_PATTERN.fullmatch(text) else None


def _sarif_invocation(report: Report, language: str) -> dict[str, Any]:
    notes = [("note", clean(text.in_language(language))) for text in report.notes]
    notes += [("skipped", _skipped_text(skipped, language)) for skipped in report.skipped]
    notes += [("similar", thread_line(thread, language)) for thread in report.similar]
    notes += [("note", clean(line)) for line in reader_lines(report, language)]
    return {
        "executionSuccessful": True,
        "exitCode": report.exit_status,
        "toolExecutionNotifications": [
            {"descriptor": {"id": name}, "level": "note", "message": {"text": text}} for name, text in notes
        ],
    }


def _skipped_text(skipped: Skipped, language: str) -> str:
    what, why = skipped.what.in_language(language), skipped.why.in_language(language)
    return clean(f"{what}{colon(language)}{why}")


def _sarif_result(finding: Finding, rule_index: int, fingerprint: str, language: str) -> dict[str, Any]:
    title = clean_line(finding.title.in_language(language))
    fixes: list[dict[str, Any]] = []
    for fix in finding.fixes:
        if fix.edits and (written := _sarif_fix(fix, language)) not in fixes:  # the schema requires unique items
            fixes.append(written)
    # GitHub rejects results without file and line: those without a file are reported for the whole repository.
    primary: dict[str, Any]
    primary = (
        _sarif_location(finding.spans[0], language) if finding.spans else {"physicalLocation": _physical_location(None)}
    )
    if finding.module or finding.parameter:
        logical = clean_line(finding.parameter or finding.module or "")
        primary["logicalLocations"] = [{"fullyQualifiedName": logical, "kind": "member"}]
    related = [{"id": number, **_sarif_location(span, language)} for number, span in enumerate(finding.spans[1:], 1)]
    return {
        "ruleId": _rule_id(finding),
        "ruleIndex": rule_index,
        "level": _LEVEL[annotation_severity(finding)],
        "message": {"text": _disable_links(f"{title}\n{annotation_text(finding, language)}")},
        "locations": [primary],
        **({"relatedLocations": related} if related else {}),
        **({"fixes": fixes} if fixes else {}),
        "partialFingerprints": {"gonogoFinding/v1": fingerprint},
        "properties": {
            "certainty": finding.certainty.value,
            "severity": finding.level.value,
            "cure": [clean(step.in_language(language)) for step in finding.cure],
            "confirm": [clean(text.in_language(language)) for text in finding.remaining_confirmations],
            "ranks": list(finding.ranks),
        },
    }


def _disable_links(text: str) -> str:
    """The text without ``[text](target)`` links, which SARIF viewers would make clickable."""
    return text.replace("](", "] (")


def _sarif_location(span: Span, language: str) -> dict[str, Any]:
    label = clean_line(span.label.in_language(language)) if span.label else ""
    return {
        "physicalLocation": _physical_location(span),
        **({"message": {"text": _disable_links(label)}} if label else {}),
    }


def _physical_location(span: Span | None) -> dict[str, Any]:
    if span is None:
        return {"artifactLocation": {"uri": ".", "uriBaseId": ROOT}, "region": {"startLine": 1}}
    where: dict[str, Any] = {"artifactLocation": _artifact_location(span.path)}
    if span.line < 1:
        return where
    region: dict[str, Any] = {"startLine": span.line}
    if span.column > 1 or span.end_column:
        region["startColumn"] = max(span.column, 1)
    if span.end_line >= span.line:
        region["endLine"] = span.end_line
    if span.end_column and (span.end_line > span.line or span.end_column >= span.column):
        region["endLine"] = max(span.end_line, span.line)
        region["endColumn"] = span.end_column
    where["region"] = region
    if text := clean(span.text).strip("\n"):
        part_of_line = "startColumn" in region and region.get("endLine", span.line) == span.line
        if part_of_line:
            where["contextRegion"] = {"startLine": span.line, "snippet": {"text": text}}
        elif "endLine" not in region or region["endLine"] == span.line:
            region["snippet"] = {"text": text}
    return where


def _artifact_location(path: str) -> dict[str, Any]:
    relative = path_from_repository_root(path)
    try:
        name = relative.encode("utf-8", "surrogateescape")  # file names that are not UTF-8
    except UnicodeEncodeError:
        name = relative.encode("utf-8", "replace")
    if relative.startswith("/"):
        return {"uri": f"file://{quote(name)}"}
    return {"uri": quote(name) or ".", "uriBaseId": ROOT}


def _sarif_fix(fix: Fix, language: str) -> dict[str, Any]:
    by_path: dict[str, list[Edit]] = {}
    for edit in fix.edits:
        by_path.setdefault(edit.path, []).append(edit)
    return {
        "description": {"text": clean_line(fix.title.in_language(language))},
        "artifactChanges": [
            {"artifactLocation": _artifact_location(path), "replacements": [_sarif_replacement(edit) for edit in edits]}
            for path, edits in by_path.items()
        ],
        "properties": {"applicability": fix.applicability.value},
    }


def _sarif_replacement(edit: Edit) -> dict[str, Any]:
    region = {"byteOffset": edit.start, "byteLength": edit.end - edit.start}
    if not edit.after:
        return {"deletedRegion": region}
    try:
        content = {"text": edit.after.decode("utf-8")}
    except UnicodeDecodeError:
        content = {"binary": base64.b64encode(edit.after).decode("ascii")}
    return {"deletedRegion": region, "insertedContent": content}


def _fingerprints(findings: Iterable[Finding]) -> list[str]:
    """A fingerprint per finding that survives moved lines: hazard, file, text of the line, and a counter."""
    seen: Counter[str] = Counter()
    prints = []
    for finding in findings:
        span = finding.spans[0] if finding.spans else None
        what = "" if span is None else "".join(span.text.split())
        parts = (
            finding.hazard,
            path_from_repository_root(span.path) if span else "",
            what or finding.title.en,
            finding.module or "",
            finding.parameter or "",
        )
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]
        seen[digest] += 1
        prints.append(f"{digest}:{seen[digest]}")
    return prints
