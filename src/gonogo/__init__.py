"""Will this multi-GPU fine-tune run? GO, NO-GO or CANNOT-TELL, before a GPU is rented."""

from __future__ import annotations

from gonogo.errors import UserError
from gonogo.finding import Applicability, Certainty, Finding, Fix, Report, Severity, Skipped, Span, Text, Verdict

__version__ = "0.1.0"

__all__ = [
    "Applicability",
    "Certainty",
    "Finding",
    "Fix",
    "Report",
    "Severity",
    "Skipped",
    "Span",
    "Text",
    "UserError",
    "Verdict",
    "__version__",
]
