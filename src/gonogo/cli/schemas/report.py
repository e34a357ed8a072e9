"""The JSON Schema of ``gonogo.report/1``, the output of ``--format json``."""

from __future__ import annotations

from typing import Any

import msgspec

from gonogo.finding import Certainty, Level, Verdict
from gonogo.finding.bisection import Bisection
from gonogo.finding.cured import Cure
from gonogo.finding.failure import FailureFacts
from gonogo.finding.guarded_run import GuardedRunSummary
from gonogo.finding.logs import Logs
from gonogo.finding.planned import Plan
from gonogo.finding.rehearsal import Rehearsal
from gonogo.finding.remedy import GapRemedy, Purpose
from gonogo.finding.second_opinion.model_reading import ModelReading
from gonogo.finding.second_opinion.upstream import UpstreamFact
from gonogo.report.json_ import SCHEMA

_STRING: dict[str, Any] = {"type": "string"}
_STRING_ARRAY: dict[str, Any] = {"type": "array", "items": _STRING}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_PLACES: dict[str, Any] = {"type": "array", "items": {"type": "object"}}
_SECTION_TYPES = {
    "rehearsal": Rehearsal,
    "plan": Plan,
    "log": Logs,
    "failure": FailureFacts,
    "bisection": Bisection,
    "cure": Cure,
    "guarded_run": GuardedRunSummary,
    "reading": ModelReading,
    "upstream": tuple[UpstreamFact, ...],
}
"""Fields of a report that are written to JSON unchanged."""


def report_schema() -> dict[str, Any]:
    """The schema, in draft 2020-12. Keys may be added to reports; none is removed."""
    (*seen, remedy), definitions = msgspec.json.schema_components(
        (*_SECTION_TYPES.values(), GapRemedy),
        schema_hook=lambda _: {"description": "any value"},
        ref_template="#/$defs/{name}",
    )
    for definition in definitions.values():
        if definition.get("properties", {}).pop("timelines", None) is not None:
            definition["properties"]["memory_over_time"] = {"type": "array", "items": _curve_schema()}
        if "timelines" in definition.get("required", ()):
            definition["required"].remove("timelines")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "type": "object",
        "required": ["schema", "command", "verdict", "findings", "covered", "skipped", "notes"],
        "properties": {
            "schema": {"const": SCHEMA},
            "command": _STRING,
            "verdict": {"enum": [verdict.value for verdict in Verdict]},
            "answer": {
                **_object_schema(
                    {
                        "says": _STRING,
                        "reason": _STRING,
                        "next": _STRING,
                        "next_does": _STRING,
                        "next_purpose": {"enum": [purpose.value for purpose in Purpose]},
                        "next_details": {"type": "object", "additionalProperties": _STRING},
                        "figures": {"type": "array", "items": _object_schema({"name": _STRING, "value": _STRING})},
                        "regressed": _STRING_ARRAY,
                        # Only for diagnose: the parts of the answer's sentence.
                        "because": _STRING,
                        "at": _nullable(_STRING),
                        "change": _nullable(_STRING),
                        "sure": {"type": "boolean"},
                        "hazard": _nullable(_STRING),
                    }
                ),
                "required": ["says", "reason", "next", "next_does", "figures"],
            },
            "findings": {"type": "array", "items": {"$ref": "#/$defs/Finding"}},
            "covered": _STRING_ARRAY,
            "skipped": {
                "type": "array",
                "items": {
                    **_object_schema({"what": _STRING, "why": _STRING, "remedy": remedy}),
                    "required": ["what", "why"],
                },
            },
            "notes": _STRING_ARRAY,
            "similar": {"type": "array", "items": {"type": "object"}},
            "clues": {"type": "array", "items": _object_schema({"text": _STRING, "places": _PLACES})},
            "environment": {"type": "object"},
            "comparison": _comparison_schema(),
            "pack": _STRING,
            **dict(zip(_SECTION_TYPES, seen, strict=True)),
        },
        "$defs": {**definitions, "Finding": _finding_schema()},
    }


def _curve_schema() -> dict[str, Any]:
    counts = {"type": "array", "items": _COUNT}
    return _object_schema(
        {
            "device": _STRING,
            "allocations": _COUNT,
            "held_mib": {"type": "object", "additionalProperties": counts},
            "reserved_mib": counts,
            "phases": {"type": "array", "items": {"type": "array"}},
        }
    )


def _comparison_schema() -> dict[str, Any]:
    side = _object_schema({"path": _nullable(_STRING), "verdict": {"enum": [verdict.value for verdict in Verdict]}})
    moved = _object_schema({"new": _STRING_ARRAY, "gone": _STRING_ARRAY})
    change = {
        **dict.fromkeys(("what", "before", "after", "change"), _STRING),
        "judged": _nullable({"enum": ["better", "worse"]}),
    }
    return _object_schema(
        {
            "judged": {"enum": ["same", "better", "regressed"]},
            "before": side,
            "after": side,
            "peak_growth": {"type": "number"},
            "reasons": _STRING_ARRAY,
            "changes": {"type": "array", "items": _object_schema(change)},
            **dict.fromkeys(("findings", "assumptions", "covered", "skipped"), moved),
        }
    )


def _finding_schema() -> dict[str, Any]:
    span = {
        "path": _STRING,
        "line": _COUNT,
        "column": _COUNT,
        "end_line": _nullable(_COUNT),
        "end_column": _nullable(_COUNT),
        "text": _STRING,
        "label": _nullable(_STRING),
    }
    fix = {
        "title": _STRING,
        "applicability": _STRING,
        "diff": _STRING,
        "apply": _nullable(_STRING),
        "edits": {"type": "array", "items": {"type": "object"}},
    }
    return _object_schema(
        {
            "hazard": _nullable(_STRING),
            "certainty": {"enum": [one.value for one in Certainty]},
            "severity": {"enum": [one.value for one in Level]},
            "title": _STRING,
            "cause": _STRING,
            "cure": _STRING_ARRAY,
            "spans": {"type": "array", "items": _object_schema(span)},
            "rank": _nullable(_COUNT),
            "ranks": {"type": "array", "items": _COUNT},
            "module": _nullable(_STRING),
            "parameter": _nullable(_STRING),
            "fixes": {"type": "array", "items": _object_schema(fix)},
            "sources": _STRING_ARRAY,
            "confirm": _STRING_ARRAY,
        }
    )


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}
