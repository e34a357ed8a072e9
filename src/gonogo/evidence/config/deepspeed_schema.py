"""A JSON Schema of DeepSpeed configs, and documentation of their keys, for one release, as editors need them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from packaging.version import InvalidVersion, Version

from gonogo.evidence.config.deepspeed_keys import (
    KeyInfo,
    builtin_optimizers,
    builtin_schedulers,
    known_child_keys,
    sampled_releases,
)
from gonogo.evidence.tables import TABLES
from gonogo.finding import Text, UserError, translated

_TYPES: dict[str, dict[str, Any]] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "str": {"type": "string"},
    "list": {"type": "array"},
}
_BOUNDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
_AUTO_VALUE_SCHEMA = {"const": "auto", "description": "transformers and accelerate fill it in"}


def validate_deepspeed_version(text: str | None) -> str:
    """Validate a DeepSpeed version; None gives the newest release in the tables. Raises UserError."""
    newest, oldest = sampled_releases()[-1], sampled_releases()[0]
    if text is None:
        return newest
    try:
        version = Version(text)
    except InvalidVersion:
        version = None
    if version is None or version < Version(oldest):
        raise UserError(
            translated(
                "--version {text}: must be a DeepSpeed version of at least {oldest}, for example {newest}"
            ).format(text=repr(text), oldest=oldest, newest=newest)
        )
    return text


def config_schema(release: str, language: str) -> dict[str, Any]:
    """The JSON Schema (draft 7, which every editor supports) of the configs that a release accepts.

    Keys that DeepSpeed ignores are allowed; values that it rejects are not. Numbers and booleans may be ``"auto"``.
    """
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"DeepSpeed {release}",
        "type": "object",
        "properties": _property_schemas(known_child_keys(), Version(release), "", language),
    }


def release_has_key(info: KeyInfo, release: Version) -> bool:
    """Whether a DeepSpeed release has a key; between two sampled releases, if either of them has it."""
    sampled = [Version(one) for one in sampled_releases()]
    if info.since and release <= max((one for one in sampled if one < Version(info.since)), default=release):
        return False
    if info.until and release >= min((one for one in sampled if one > Version(info.until)), default=release):
        return False
    return release not in {Version(one) for one in info.absent}


def key_meaning(path: str, language: str) -> str:
    """The purpose of a key (``zero_optimization.stage``); empty if the table has none."""
    meanings = _load_meanings().get(path)
    return "" if meanings is None else meanings[language if language == "zh" else "en"]


def default_in_release(info: KeyInfo, release: Version) -> Any:
    """The key's default value in a release; None if unknown."""
    found = info.default
    for since, value in info.defaults:
        if release >= Version(since):
            found = value
    return found


def describe_key(path: str, info: KeyInfo, release: Version, language: str) -> str:
    """A description of a key: its meaning, default, releases and replacement."""
    lines = [key_meaning(path, language)]
    default = default_in_release(info, release)
    if default is not None:
        lines.append(_format_in_language(translated("Default: {value}."), language, value=json.dumps(default)))
    if info.since:
        lines.append(
            _format_in_language(translated("Available since DeepSpeed {version}."), language, version=info.since)
        )
    if info.until:
        lines.append(
            _format_in_language(translated("Available until DeepSpeed {version}."), language, version=info.until)
        )
    if info.deprecated:
        lines.append(_format_in_language(translated("Deprecated."), language))
    if info.replacement:
        lines.append(_format_in_language(translated("Use {name} instead."), language, name=info.replacement))
    return " ".join(one for one in lines if one)


def _format_in_language(text: Text, language: str, **values: object) -> str:
    return text.format(**values).in_language(language)


def _property_schemas(keys: Mapping[str, KeyInfo], release: Version, path: str, language: str) -> dict[str, Any]:
    return {
        name: _key_schema(info, release, f"{path}{name}", language)
        for name, info in keys.items()
        if release_has_key(info, release)
    }


def _key_schema(info: KeyInfo, release: Version, path: str, language: str) -> dict[str, Any]:
    schema = _value_schema(info, release, path, language)
    description = describe_key(path, info, release, language)
    default = default_in_release(info, release)
    return {
        **({"description": description} if description else {}),
        **schema,
        **({"default": default} if default is not None and schema else {}),
        **({"deprecated": True} if info.deprecated else {}),
    }


def _value_schema(info: KeyInfo, release: Version, path: str, language: str) -> dict[str, Any]:
    if path in ("optimizer.type", "scheduler.type"):
        names = builtin_optimizers() if path.startswith("optimizer") else builtin_schedulers()
        return {
            "type": "string",
            "examples": [name for name, known in names.items() if release_has_key(known, release)],
        }
    if info.type == "object" or info.children:
        properties = _property_schemas(info.children, release, f"{path}.", language)
        closed = bool(info.closed) and release >= Version(info.closed) and not info.free
        schema: dict[str, Any] = {"properties": properties}
        if closed:
            schema["additionalProperties"] = False
        return {"type": ["object", "null"], **schema} if info.type == "object" and not info.free else schema
    if info.type not in _TYPES:
        return {}
    plain = dict(_TYPES[info.type])
    if not info.limits_since or release >= Version(info.limits_since):
        plain |= {_BOUNDS[name]: bound for name, bound in info.bounds.items()}
        if info.values:
            plain = {"enum": list(info.values)}
    anything: list[dict[str, Any]] = [plain, _AUTO_VALUE_SCHEMA]
    return {"anyOf": anything if default_in_release(info, release) is not None else [*anything, {"type": "null"}]}


@cache
def _load_meanings() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((TABLES / "deepspeed_meanings.json").read_text(encoding="utf-8"))
    return found
