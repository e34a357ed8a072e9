"""What the process that makes the report leaves for the rank that hands it over."""

from __future__ import annotations

import msgspec

PAGE, MARKDOWN, SUMMARY = "report.html", "report.md", "summary.json"


class Summary(msgspec.Struct, frozen=True):
    """What the report says, in short."""

    findings: list[str]
    """Each as ``error[hazard]: title``."""
