"""All keys that DeepSpeed configs have ever had, and their releases: the table in ``deepspeed_keys.json``.

The table is extracted from DeepSpeed's source by ``scripts/deepspeed_keys``, for a sample of releases; "since" and
"until" are the first and last sampled releases that have a key. It is loaded on first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec

from gonogo.evidence.tables import TABLES

_TABLE = TABLES / "deepspeed_keys.json"
_MIN_SIMILARITY = 0.85
_SIMILAR = 0.7
# Shorter names are part of many others.
_MIN_CONTAINED_NAME_LENGTH = 8


class KeyInfo(msgspec.Struct, frozen=True):
    """What is known about a DeepSpeed config key: its type, default, releases, and the keys below it."""

    type: str = "any"
    """``bool``, ``int``, ``float``, ``str``, ``list``, ``object``, or ``any`` if DeepSpeed doesn't check it."""
    since: str = ""
    """The first sampled release that has it; empty if the oldest one does."""
    until: str = ""
    """The last sampled release that has it; empty if the newest one does."""
    absent: tuple[str, ...] = ()
    """Sampled releases in between that don't have it, since it was removed and added again."""
    refused: str = ""
    """The first sampled release that refuses to start with it; empty if none does."""
    default: Any = None
    defaults: tuple[tuple[str, Any], ...] = ()
    """Earlier defaults, each with its first sampled release, the oldest first."""
    values: tuple[Any, ...] = ()
    """The allowed values, if they are limited."""
    bounds: Mapping[str, float] = {}
    """Limits of a number: ``gt``, ``ge``, ``lt``, ``le``."""
    limits_since: str = ""
    """The first sampled release with these values and bounds; empty if they never changed."""
    deprecated: bool = False
    replacement: str = ""
    """The replacement of a deprecated key: a name at the same level, or a dotted path."""
    same_as: str = ""
    """The documented name that this is an alias of."""
    closed: str = ""
    """The first sampled release that rejects unknown keys in this object; empty if they are ignored."""
    free: bool = False
    """Whether the object's content is not defined by DeepSpeed, so that any key is allowed."""
    children: Mapping[str, KeyInfo] = {}


class _DeepSpeedKeysTable(msgspec.Struct, frozen=True):
    releases: tuple[str, ...]
    keys: Mapping[str, KeyInfo]
    optimizers: Mapping[str, KeyInfo]
    schedulers: Mapping[str, KeyInfo]


@cache
def _load_table() -> _DeepSpeedKeysTable:
    return msgspec.json.decode(_TABLE.read_bytes(), type=_DeepSpeedKeysTable)


_FREE_KEY = KeyInfo(free=True)


def find_key_info(keys: Sequence[str]) -> KeyInfo | None:
    """The facts about a key; None if no sampled release has it.

    All keys are known within objects not defined by DeepSpeed (a custom optimizer's parameters).
    """
    level: Mapping[str, KeyInfo] = _load_table().keys
    info: KeyInfo | None = None
    for name in keys:
        if name not in level:
            return _FREE_KEY if info is not None and info.free else None
        info = level[name]
        level = info.children
    return info


def known_child_keys(keys: Sequence[str] = ()) -> Mapping[str, KeyInfo]:
    """The known keys of an object; without arguments, those of the top level."""
    if not keys:
        return _load_table().keys
    info = find_key_info(keys)
    return info.children if info is not None else {}


@cache
def alias_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Other names of the same value in DeepSpeed: without ``stage3_``, or from before a renaming."""
    info = find_key_info(keys)
    if info is None or info.free:
        return ()
    return tuple(
        name
        for name, other in known_child_keys(keys[:-1]).items()
        if other.same_as == keys[-1] or (other.replacement == keys[-1] and other.type == info.type)
    )


def sampled_releases() -> tuple[str, ...]:
    """The DeepSpeed releases whose config keys are in the table, the oldest first."""
    return _load_table().releases


def builtin_optimizers() -> Mapping[str, KeyInfo]:
    """DeepSpeed's own optimizers, by their lower-case names."""
    return _load_table().optimizers


def builtin_schedulers() -> Mapping[str, KeyInfo]:
    """DeepSpeed's learning-rate schedulers by name."""
    return _load_table().schedulers


def is_comment_key(name: str) -> bool:
    """Whether a key is a comment, by common conventions: ``_comment``, ``//``, ``#``."""
    return name.startswith(("_", "//", "#", "$")) or name.lower().strip() in ("comment", "comments", "note", "notes")


def nearest_known_key(keys: Sequence[str]) -> str | None:
    """The dotted path of the known key that was most likely meant, or None.

    That is a similar name in the same object, or the same name in another one: ``stage`` alone belongs to
    ``zero_optimization``.
    """
    if not keys or is_comment_key(keys[-1]):
        return None
    wanted, parent = _normalize_key(keys[-1]), tuple(keys[:-1])
    here, elsewhere = _recommended_paths(parent)
    if wanted in here:
        return here[wanted]
    if close := _most_similar(wanted, here, _MIN_SIMILARITY):
        return here[close]
    if (
        len(wanted) >= _MIN_CONTAINED_NAME_LENGTH
        and len(holding := [name for name in here if f"_{wanted}_" in f"_{name}_"]) == 1
    ):
        return here[holding[0]]
    if len(same := elsewhere.get(wanted, [])) == 1:
        return same[0]
    if similar := _most_similar(wanted, here, _SIMILAR):
        return here[similar]
    single = {name: paths[0] for name, paths in elsewhere.items() if len(paths) == 1}
    close = _most_similar(wanted, single, _MIN_SIMILARITY)
    return single[close] if close else None


@lru_cache(maxsize=64)
def _recommended_paths(parent: tuple[str, ...]) -> tuple[Mapping[str, str], Mapping[str, list[str]]]:
    """The dotted paths of recommendable keys by name: those in the given object, and those in others."""
    here = {
        _normalize_key(name): ".".join((*parent, name))
        for name, info in known_child_keys(parent).items()
        if _is_recommended(info)
    }
    elsewhere: dict[str, list[str]] = {}
    for path, info in _all_keys():
        if _is_recommended(info) and path[:-1] != parent:
            elsewhere.setdefault(_normalize_key(path[-1]), []).append(".".join(path))
    return here, elsewhere


def _normalize_key(name: str) -> str:
    """A key without case and punctuation, for finding similar ones."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def _is_recommended(info: KeyInfo) -> bool:
    """Whether to recommend a key to users: current, not deprecated, not an alias."""
    return not (info.until or info.refused or info.deprecated or info.same_as)


def _all_keys() -> Iterator[tuple[tuple[str, ...], KeyInfo]]:
    pending: list[tuple[tuple[str, ...], KeyInfo]] = [((name,), info) for name, info in _load_table().keys.items()]
    while pending:
        path, info = pending.pop()
        yield path, info
        if not info.free:
            pending.extend(((*path, name), child) for name, child in info.children.items())


def _most_similar(key: str, names: Mapping[str, str], min_ratio: float) -> str | None:
    """The path of the name most similar to a key, if the similarity is at least ``min_ratio``."""
    from difflib import get_close_matches

    found = get_close_matches(key[:100], names, n=1, cutoff=min_ratio)
    return found[0] if found else None
