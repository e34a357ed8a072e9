"""Convert findings for editors: findings to diagnostics, fixes to code actions."""

from __future__ import annotations

import msgspec
from lsprotocol import types as lsp
from pygls import uris
from pygls.workspace import TextDocument, Workspace
from pygls.workspace.position_codec import ServerTextPosition

from gonogo.evidence.paths import resolve_path
from gonogo.finding import Applicability, Finding, Fix, Level, Span

_SEVERITIES = {
    Level.ERROR: lsp.DiagnosticSeverity.Error,
    Level.RISK: lsp.DiagnosticSeverity.Information,
    Level.WARNING: lsp.DiagnosticSeverity.Warning,
    Level.NOTE: lsp.DiagnosticSeverity.Hint,
}
_BOM = b"\xef\xbb\xbf"


class PlacedFinding(msgspec.Struct, frozen=True):
    """A finding at one of its places."""

    finding: Finding
    span: Span


def to_diagnostic(placed_finding: PlacedFinding, document: TextDocument, language: str) -> lsp.Diagnostic:
    """Convert a finding to a diagnostic for its document."""
    finding = placed_finding.finding
    related = [
        lsp.DiagnosticRelatedInformation(
            lsp.Location(file_uri(span.path), lsp.Range(_span_start(span), _span_start(span))),
            span.label.in_language(language) if span.label else span.text.strip(),
        )
        for span in finding.spans
        if span is not placed_finding.span and (span.label or span.text.strip())
    ]
    severity = _SEVERITIES[finding.level]
    if finding.level is Level.ERROR and finding.certainty.value != "certain":
        severity = lsp.DiagnosticSeverity.Warning
    lines = [finding.title.in_language(language), finding.cause.in_language(language)]
    lines += [f"→ {step.in_language(language)}" for step in finding.cure]
    return lsp.Diagnostic(
        range=_span_range(placed_finding.span, document),
        message="\n".join(lines),
        severity=severity,
        code=finding.hazard,
        source="gonogo",
        related_information=related or None,
    )


def to_code_action(
    placed_finding: PlacedFinding, fix: Fix, workspace: Workspace, language: str
) -> lsp.CodeAction | None:
    """Convert a fix to a code action; None if it is manual, or if a document has changed since."""
    if not fix.edits or fix.applicability is Applicability.MANUAL:
        return None
    changes: dict[str, list[lsp.TextEdit]] = {}
    for edit in fix.edits:
        uri = file_uri(edit.path)
        document = workspace.get_text_document(uri)
        try:
            data = document.source.encode("utf-8")
            start = (
                edit.start if _has_bytes_at_offset(data, edit.start, edit.before) else edit.start - len(_BOM)
            )  # editors hide the BOM
            if start < 0 or not _has_bytes_at_offset(data, start, edit.before):
                return None
            first = len(data[:start].decode("utf-8"))
            last = first + len(edit.before.decode("utf-8"))
            after = edit.after.decode("utf-8")
        except UnicodeError:
            return None
        place = lsp.Range(position_at(document, first), position_at(document, last))
        changes.setdefault(uri, []).append(lsp.TextEdit(place, after))
    return lsp.CodeAction(
        title=fix.title.in_language(language),
        kind=lsp.CodeActionKind.QuickFix,
        is_preferred=fix.applicability is Applicability.SAFE,
        diagnostics=[
            to_diagnostic(placed_finding, workspace.get_text_document(file_uri(placed_finding.span.path)), language)
        ],
        edit=lsp.WorkspaceEdit(changes=changes),
    )


def file_uri(path: str) -> str:
    """The file URI of a path."""
    return uris.from_fs_path(str(resolve_path(path))) or ""


def position_at(document: TextDocument, offset: int) -> lsp.Position:
    """The position of a character offset in the client's units; an offset beyond the text gives its end."""
    if offset < len(document.source):
        return document.client_position_at_offset(offset)
    lines = document.lines
    if not lines or lines[-1].endswith(("\n", "\r")):
        return lsp.Position(len(lines), 0)
    return document.position_to_client_units(ServerTextPosition(len(lines) - 1, len(lines[-1])))


def _has_bytes_at_offset(data: bytes, start: int, before: bytes) -> bool:
    return data[start : start + len(before)] == before


def _span_start(span: Span) -> lsp.Position:
    return lsp.Position(max(0, span.line - 1), max(0, span.column - 1))


def _span_range(span: Span, document: TextDocument) -> lsp.Range:
    """A span as a range in the client's units; without an end position, it extends to the end of its line."""
    lines = document.lines
    if not 1 <= span.line <= len(lines):
        return lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
    first = sum(len(line) for line in lines[: span.line - 1]) + min(span.column - 1, len(lines[span.line - 1]))
    if span.end_line and span.end_line <= len(lines):
        last = sum(len(line) for line in lines[: span.end_line - 1]) + span.end_column - 1
    else:
        last = sum(len(line) for line in lines[: span.line - 1]) + len(lines[span.line - 1].rstrip())
    return lsp.Range(position_at(document, first), position_at(document, max(first, last)))
