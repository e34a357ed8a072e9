"""Decides whether the run's DeepSpeed knows, rejects or ignores a config key.

The table of keys was read from a sample of releases; between two of them nothing is claimed.
"""

from collections.abc import Iterator
from functools import cache, lru_cache

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.config.deepspeed_keys import KeyInfo, find_key_info, is_comment_key, sampled_releases
from gonogo.evidence.field import Field
from gonogo.evidence.run import Run

_MAX_UNKNOWN = 200
"""The most unknown keys examined in one config."""
_COMMON_RELEASES = ("0.7.7", "0.8.3", "0.9.5", "0.10.3")
"""Releases so old that a run of unknown version certainly has a newer one."""


@cache
def _adjacent_release(release: str, step: int) -> str | None:
    """The sampled release before (``step`` -1) or after (1) ``release``."""
    everything = sampled_releases()
    index = everything.index(release) + step if release in everything else -1
    return everything[index] if 0 <= index < len(everything) else None


def is_key_known(info: KeyInfo, run: Run) -> bool | None:
    """Whether the run's DeepSpeed knows the key; None if the release is unknown or lies between two samples."""
    environment = run.environment
    if info.since and environment.within("deepspeed", f">={info.since}") is not True:
        before = _adjacent_release(info.since, -1)
        if before and environment.within("deepspeed", f"<={before}"):
            return False
        if info.since not in _COMMON_RELEASES or "deepspeed" in environment.packages:
            return None
    if info.until:
        if environment.within("deepspeed", f"<={info.until}"):
            return True
        after = _adjacent_release(info.until, 1)
        return False if after and environment.within("deepspeed", f">={after}") else None
    return True


def has_current_limits(info: KeyInfo, run: Run) -> bool | None:
    """Whether the key's values and bounds in the run's DeepSpeed are the current ones; None if unknown."""
    first = info.limits_since
    if not first or run.environment.within("deepspeed", f">={first}"):
        return True
    before = _adjacent_release(first, -1)
    if before and run.environment.within("deepspeed", f"<={before}"):
        return False
    return True if first in _COMMON_RELEASES and "deepspeed" not in run.environment.packages else None


def rejects_unknown_keys(info: KeyInfo | None, run: Run) -> bool | None:
    """Whether the run's DeepSpeed rejects unknown keys in this object; None if that depends on an unknown release."""
    if info is None or not info.closed:
        return False
    if info.absent:  # removed, and added again later
        within = run.environment.within
        if within("deepspeed", f">={info.absent[0]},<={info.absent[-1]}"):
            return False
        back = _adjacent_release(info.absent[-1], 1)
        if not (back and within("deepspeed", f">={back}")):
            return None
    if info.closed in _COMMON_RELEASES or run.environment.within("deepspeed", f">={info.closed}"):
        return True
    before = _adjacent_release(info.closed, -1)
    return False if before and run.environment.within("deepspeed", f"<={before}") else None


@lru_cache(maxsize=8)
def keys_with_descriptions(
    config: DeepSpeedConfig,
) -> tuple[tuple[tuple[str, ...], Field, KeyInfo | None, KeyInfo | None], ...]:
    """Every key of the config with its value, what is known of the key, and what is known of the object around it."""
    infos: dict[tuple[str, ...], KeyInfo | None] = {(): None}
    found = []
    for keys, field in config.entries():
        infos[keys] = find_key_info(keys)
        found.append((keys, field, infos[keys], infos.get(keys[:-1])))
    return tuple(found)


def unknown_keys(config: DeepSpeedConfig) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Keys that no release knows in DeepSpeed's own objects; outermost keys only, without comments.

    At most ``_MAX_UNKNOWN``: a file with hundreds of them belongs to another program, and the search for the intended
    key takes time.
    """
    beneath: tuple[str, ...] | None = None
    left = _MAX_UNKNOWN
    for keys, field, info, parent in keys_with_descriptions(config):
        if beneath is not None and keys[: len(beneath)] == beneath:
            continue
        if is_comment_key(keys[-1]):
            beneath = keys
        elif info is None:
            beneath = keys
            if len(keys) == 1 or (parent is not None and parent.type == "object"):
                yield keys, field
                left -= 1
        if left == 0:
            return
