"""Makes untrusted text (exception messages, source lines, paths) safe to print.

A log or a source file may contain terminal escape sequences; printed verbatim, they could recolour, retitle or
rewrite the reader's terminal, or make a line of code look like another (bidirectional overrides).
"""

from __future__ import annotations

import re
import sys

from gonogo.finding import Text

_ESCAPE_SEQUENCE_PATTERN = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS …: titles, links
    r"|\x1b[ -/]*[0-~]?"  # short sequences
)
_CONTROL_PATTERN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    r"""The text without escape sequences, control characters (but ``\n``), direction overrides and lone surrogates.

    Tabs become spaces.
    """
    return _CONTROL_PATTERN.sub("", _ESCAPE_SEQUENCE_PATTERN.sub("", text.replace("\r\n", "\n"))).expandtabs(4)


def clean_line(text: str) -> str:
    """:func:`clean`, on one line, for table cells and headings."""
    return " ".join(clean(text).split())


def print_error(text: Text, language: str) -> None:
    """Print a message of one line on stderr, free of terminal escapes and of secrets."""
    from gonogo.finding.redaction import redact

    print(f"gonogo: {clean_line(redact(text.in_language(language)))}", file=sys.stderr)
