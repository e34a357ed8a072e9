"""``# gonogo: allow NAME``: a finding that its place allows is not reported."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from gonogo.evidence.patterns import compiled_when_used
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Finding

# In a shell script, YAML, Python, requirements after "#"; in a JSON with comments after "//".
_ALLOW = compiled_when_used(rb"(?:#|//)\s*gonogo:\s*allow\s+([\w*?\[\]-]+(?:\s*,\s*[\w*?\[\]-]+)*)")
_ONLY_A_COMMENT = compiled_when_used(rb"\s*(?:#|//)")


def is_allowed(finding: Finding, files: Mapping[str, SourceFile]) -> bool:
    """Whether a comment on one of the finding's lines, or on a line of its own directly above, allows it."""
    return any(
        span.path in files and finding_is_allowed_at(finding.hazard, files[span.path], span.line)
        for span in finding.spans[:1]
    )


def finding_is_allowed_at(hazard: str, source: SourceFile, line: int) -> bool:
    """Whether the hazard is allowed at that line of the file (from 1)."""
    if b"gonogo:" not in source.data:
        return False
    lines = [source.line_bytes(line)]
    above = line - 1
    while above >= 1 and source.line_bytes(above).rstrip(b"\r\n").endswith(b"\\"):
        above -= 1  # no comment can stand inside a command that goes on over several lines
    while above >= 1 and _ONLY_A_COMMENT.match(source.line_bytes(above)):
        lines.append(source.line_bytes(above))
        above -= 1
    return any(_names(text, hazard) for text in lines)


def _names(text: bytes, hazard: str) -> bool:
    found = _ALLOW.search(text)
    patterns = found.group(1).decode("ascii", "replace").split(",") if found else []
    return any(fnmatchcase(hazard, pattern.strip()) for pattern in patterns)
