"""The files that the report process leaves for the rank that uploads them."""

from __future__ import annotations

import msgspec

PAGE, MARKDOWN, SUMMARY = "report.html", "report.md", "summary.json"


class Summary(msgspec.Struct, frozen=True):
    """A short summary of the report."""

    findings: list[str]
    """Each as ``error[hazard]: title``."""
