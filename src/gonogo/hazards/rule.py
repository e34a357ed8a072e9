"""All that the module of a hazard imports: base class, evidence (except logs) and findings."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.field import Field
from gonogo.evidence.guarded.guarded_run import GuardedRun
from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.patterns import Pattern
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Call, Script
from gonogo.finding import Applicability, Certainty, Edit, Finding, Fix, Severity, Span, Text, translated
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.refusal import Refusal

__all__ = [
    "Applicability",
    "Call",
    "Certainty",
    "DeepSpeedConfig",
    "Edit",
    "Environment",
    "Field",
    "Finding",
    "Findings",
    "Fix",
    "GuardedRun",
    "Hazard",
    "Launch",
    "Pattern",
    "Refusal",
    "RehearsalRecord",
    "Run",
    "Script",
    "Severity",
    "Span",
    "Text",
    "translated",
]

Findings = Iterator[Finding]
"""What a handler returns."""
