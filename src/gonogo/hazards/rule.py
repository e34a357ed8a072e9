"""All that the module of a hazard imports: base classes, evidence and findings."""

from __future__ import annotations

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.field import Field, whole_number
from gonogo.evidence.guarded.guarded_run import GuardedRun
from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.patterns import Pattern
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Call, Script
from gonogo.evidence.source_file import Place
from gonogo.finding import Applicability, Certainty, Edit, Finding, Fix, Severity, Span, Text, translated
from gonogo.hazards.hazard import Findings, Hazard
from gonogo.hazards.log_rule import LoggedHazard, Sign
from gonogo.hazards.refusal import Refusal

__all__ = [
    "Applicability",
    "Call",
    "Certainty",
    "DeepSpeedConfig",
    "Edit",
    "Environment",
    "FailureLog",
    "Field",
    "Finding",
    "Findings",
    "Fix",
    "GuardedRun",
    "Hazard",
    "Launch",
    "LineMatch",
    "LogLine",
    "LoggedError",
    "LoggedHazard",
    "Pattern",
    "Place",
    "Refusal",
    "RehearsalRecord",
    "Run",
    "Script",
    "Severity",
    "Sign",
    "Span",
    "Text",
    "translated",
    "whole_number",
]
