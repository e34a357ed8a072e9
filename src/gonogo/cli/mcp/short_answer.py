"""What a tool answers unless more is asked for: the verdict with its reason, findings and the command's own result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from gonogo.diagnose.pack.tokens import count_tokens
from gonogo.finding.words import size

MAX_TOKENS = 1500
"""Of a whole answer, as JSON; ``count_tokens`` counts rather too many."""
_MAX_DIFF_TOKENS = 500
_MAX_PATCH_TOKENS = 800
"""A patch is answered whole or not at all: a part of one can't be applied."""
_TRUNCATION_LIMITS = ((500, 5000), (60, 2500), (25, 1200), (12, 700), (8, 400), (5, 250), (3, 150), (2, 80))
"""Entries of a list, characters of a string: the first that makes it fit is taken."""
_UNTRUNCATED_FIELDS = ("patch", "fix")
"""Entries whose text is not shortened."""

_Json = dict[str, Any]


def short_report(report: _Json, language: str = "en", tokens: int = MAX_TOKENS) -> _Json:
    """The report of a command in at most so many tokens of JSON."""
    shortened = _in_language(report, language)
    whole = {name: value for name, value in _parts_by_importance(shortened) if value not in (None, "", [], {})}
    for entries, characters in _TRUNCATION_LIMITS:
        found: _Json = _truncate_json(whole, entries, characters)
        if count_tokens(as_json(found)) <= tokens:
            return found
    for name in _UNTRUNCATED_FIELDS:
        found.pop(name, None)
    return found


def as_json(value: Any) -> str:
    """Compact JSON, as a model reads it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _in_language(value: Any, language: str) -> Any:
    """The value, with only one language of each sentence that exists in both."""
    if isinstance(value, list):
        return [_in_language(one, language) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"en", "zh"}:
        return value[language]
    return {name: _in_language(one, language) for name, one in value.items()}


def _truncate_json(value: Any, entries: int, characters: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= characters else f"{value[:characters]} […]"
    if isinstance(value, list):
        left = [f"[… {len(value) - entries} more]"] if len(value) > entries else []
        return [*(_truncate_json(one, entries, characters) for one in value[:entries]), *left]
    if isinstance(value, dict):
        return {
            name: one if name in _UNTRUNCATED_FIELDS else _truncate_json(one, entries, characters)
            for name, one in value.items()
        }
    return value


def _parts_by_importance(report: _Json) -> Iterator[tuple[str, Any]]:
    """The parts of a report that the short answer has, most important first."""
    answer = report.get("answer") or {}
    for name in ("says", "reason", "next", "next_does"):
        yield name, answer.get(name)
    yield "figures", {one["name"]: one["value"] for one in answer.get("figures", ())}
    yield "findings", [_finding_summary(one) for one in report.get("findings", ())]
    for name, part in _PARTS_BY_FIELD.items():
        if isinstance(report.get(name), dict | list | str):
            yield from part(report[name])
    yield "clues", [one["text"] for one in report.get("clues", ())]
    yield "notes", report.get("notes")
    skipped = report.get("skipped", ())
    yield "not_covered", [f"{one['what']}: {one['why']}" if isinstance(one, dict) else one for one in skipped]


def _finding_summary(found: _Json) -> _Json:
    where = [f"{span['path']}:{span['line']}" for span in found["spans"][:3]]
    fix = found["fixes"][0]["diff"] if found["fixes"] else ""
    shortened = {
        "hazard": found["hazard"],
        "severity": found["severity"],
        "certainty": found["certainty"],
        "title": found["title"],
        "at": where,
        "ranks": found["ranks"] or ([found["rank"]] if found["rank"] is not None else []),
        "cause": found["cause"],
        "cure": found["cure"],
        "confirm": found["confirm"] if found["certainty"] != "certain" else [],
        "fix": fix if count_tokens(fix) <= _MAX_DIFF_TOKENS else "",
    }
    return {name: value for name, value in shortened.items() if value not in (None, "", [])}


def _rehearsal_fields(rehearsal: _Json) -> Iterator[tuple[str, Any]]:
    yield "ranks", [_rank_summary(one) for one in rehearsal["ranks"]]
    yield "also", [_variant_summary(one) for one in rehearsal.get("also", ())]
    yield (
        "changed",
        [f"{one['name']}={one['value']}: set it in {', '.join(one['files'])}" for one in rehearsal.get("changed", ())],
    )


def _rank_summary(rank: _Json) -> str:
    outcome = f"rank {rank['rank']}: {rank['outcome']}, last in {rank['last_activity']}, {rank['steps']} steps"
    return f"{outcome}, {size(rank['peak_reserved_bytes'])} of GPU memory reserved"


def _variant_summary(variant: _Json) -> _Json:
    seconds, speed = variant["seconds_of_step"], variant["tokens_per_second_per_gpu"]
    shortened = {
        "settings": ",".join(f"{name}={value}" for name, value in variant["settings"].items()),
        "verdict": variant["verdict"],
        "reason": variant["reason"],
        "gpu_memory": size(variant["peak_reserved_bytes"]),
        "seconds_per_step": round(seconds, 2) if seconds is not None else None,
        "tokens_per_second_per_gpu": round(speed) if speed is not None else None,
    }
    return {name: value for name, value in shortened.items() if value is not None}


def _cure_fields(cure: _Json) -> Iterator[tuple[str, Any]]:
    patch = cure["patch"] or ""
    yield "proven", cure["proven"]
    yield "patch", patch if count_tokens(patch) <= _MAX_PATCH_TOKENS else ""
    for name in ("folder", "pins", "variables", "command"):
        yield name, cure[name]
    yield "changes", [f"{step['title']} ({', '.join(step['files'])})" for step in cure["steps"]]
    yield "other_cures", [one["title"] for one in cure["alternatives"]]


def _plan_fields(plan: _Json) -> Iterator[tuple[str, Any]]:
    yield "fits_fastest_first", [_strategy_summary(one) for one in plan["fitting"]]


def _strategy_summary(found: _Json) -> str:
    batch = f"{found['micro_batch']} x {found['gradient_accumulation']}"
    speed = found["tokens_per_second_per_gpu"]
    words = [f"{found['strategy']}, batch {batch}, {size(found['reserved_bytes'])} ± {found['band']:.0%}"]
    words += [f"{speed:,.0f} tokens/s/GPU"] if speed is not None else []
    return ", ".join(words)


def _comparison_fields(comparison: _Json) -> Iterator[tuple[str, Any]]:
    yield "judged", comparison["judged"]
    yield (
        "changes",
        [f"{one['what']}: {one['before']} -> {one['after']} {one['change']}".rstrip() for one in comparison["changes"]],
    )
    for name in ("findings", "assumptions"):
        yield f"new_{name}", comparison[name]["new"]
        yield f"gone_{name}", comparison[name]["gone"]


def _required_inputs(wanted: list[_Json]) -> Iterator[tuple[str, Any]]:
    yield "needs", [_required_input(one) for one in wanted]


def _required_input(one: _Json) -> str:
    why = f" ({one['why']})" if one["why"] else ""
    return f"{one['kind']} {one['name']}: {one['state']}{why}, from {one['place']}"


def _package_fields(packages: _Json) -> Iterator[tuple[str, Any]]:
    yield "packages_not_as_required", [f"{one['what']}: {one['why']}" for one in packages["not_as_asked"]]


def _hazard_list(hazards: list[_Json]) -> Iterator[tuple[str, Any]]:
    yield "count", len(hazards)
    yield "hazards", [f"{one['name']}: {one['title']}" for one in hazards]


def _field_copier(name: str) -> Callable[[Any], Iterator[tuple[str, Any]]]:
    def copy_field(value: Any) -> Iterator[tuple[str, Any]]:
        yield name, value

    return copy_field


_PARTS_BY_FIELD: dict[str, Callable[[Any], Iterator[tuple[str, Any]]]] = {
    "title": _field_copier("title"),
    "page": _field_copier("page"),
    "hazards": _hazard_list,
    "rehearsal": _rehearsal_fields,
    "cure": _cure_fields,
    "plan": _plan_fields,
    "comparison": _comparison_fields,
    "wanted": _required_inputs,
    "folder": _field_copier("folder"),
    "ended_with": _field_copier("ended_with"),
    "packages": _package_fields,
}
