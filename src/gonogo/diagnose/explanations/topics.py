"""Which part of a training stack failed (``topics.toml``), the settings that turn it on, and what to try without it.

No message has to be known for that: the names of the failing functions, files and lines say what the code is for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from gonogo.diagnose.explanations.places import required_settings
from gonogo.evidence.failure.settings import RunSetting
from gonogo.evidence.patterns import cached_lazy_pattern
from gonogo.finding import Text, translated
from gonogo.finding.failure import CodePlace, RaisedException
from gonogo.hazards.build_cache import toml_values

TOPICS_FILE = Path(__file__).with_name("topics.toml")
_MAX_TOPICS = 2
_NEEDED_WEIGHT = 3
_MAX_FRAMES = 24
_NEAR_FRAMES = 5
_OFF_VALUES = ("false", "0", "none", "no", "null", "off", "", "disable", "disabled")
_SIZE_PATTERN = re.compile(r"(?:size|degree|parallel|^[tpce]p$|parallel_\w+)$")


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A feature or a phase that failing code may belong to; see the head of ``topics.toml``."""

    name: Text
    code: str
    usual: Text
    off: Text
    settings: str = ""
    says: str = ""
    all: bool = False
    """Whether a frame, the message and a setting are all needed."""


class FailingPart(NamedTuple):
    """A topic that a failure belongs to, the frame that shows it (None: the message), and the setting that is on."""

    topic: Topic
    frame: CodePlace | None
    setting: RunSetting | None


def failing_parts(exception: RaisedException, settings: Sequence[RunSetting]) -> tuple[FailingPart, ...]:
    """The topics of the failing code, the clearest first; none if neither frames nor message are of any."""
    frames = tuple(reversed(exception.frames))[:_MAX_FRAMES]
    texts = [_text_of(frame) for frame in frames]
    message = exception.message.text[:2000].lower()
    settled = bool(required_settings(exception))
    weighed: list[tuple[int, FailingPart]] = []
    for topic in load_topics():
        code = cached_lazy_pattern(topic.code)
        shown = next((index for index, text in enumerate(texts) if code.search(text)), None)
        said = cached_lazy_pattern(topic.says or topic.code).search(message) is not None
        if not said and (shown is None or settled):
            continue  # A message that requires something of settings says by itself what to change.
        setting = next(_settings_of(topic, settings), None)
        if topic.all and (shown is None or not said or setting is None):
            continue
        if setting is None and not said and not _is_in_name(code, frames[:_NEAR_FRAMES]):
            continue  # A folder's name, or an argument, does not say what the functions are for.
        weight = (0 if shown is None else 3 if shown < 2 else 2 if shown < 5 else 1) + 2 * said + (setting is not None)
        weight += bool(topic.says) and said and setting is not None
        weighed.append((weight, FailingPart(topic, frames[shown] if shown is not None else None, setting)))
    weighed.sort(key=lambda one: -one[0])
    return tuple(part for weight, part in weighed if weight >= _NEEDED_WEIGHT)[:_MAX_TOPICS]


def describe_failing_part(part: FailingPart) -> Text:
    """A clue: what the failing code is for, what turns it on, what usually goes wrong in it, and how to make sure."""
    shown = part.frame.function if part.frame is not None else ""
    return translated(
        "The failing code is for {topic}{where}{setting}. Usual reasons there: {usual}. To tell: {off}"
    ).format(
        topic=part.topic.name,
        where=Text(f" ({shown})", f"（{shown}）") if shown and not shown.startswith("<") else "",
        setting=translated(", which {name}={value} in {source} turns on").format(
            name=part.setting.name, value=part.setting.value[:60], source=part.setting.source
        )
        if part.setting is not None
        else "",
        usual=part.topic.usual,
        off=part.topic.off,
    )


def suggest_change(part: FailingPart, exception: RaisedException) -> Text:
    """What to try: without the feature, or with a later release of the package that implements it."""
    package = _package_of(part, exception)
    return translated("{off}{setting}, to tell whether the failure comes from {topic}{later}").format(
        topic=part.topic.name,
        off=part.topic.off,
        setting=Text(
            f" ({part.setting.name} is {part.setting.value[:60]})",
            f"（{part.setting.name} 为 {part.setting.value[:60]}）",
        )
        if part.setting is not None
        else "",
        later=translated("; if it does, use a later release of {package}, or do without it").format(package=package)
        if package
        else "",
    )


def _package_of(part: FailingPart, exception: RaisedException) -> str:
    """The package that implements the failing part, or the innermost one that is not torch."""
    if part.frame is not None and part.frame.package not in ("", "torch"):
        return part.frame.package
    return next((frame.package for frame in reversed(exception.frames) if frame.package not in ("", "torch")), "")


def _is_in_name(pattern: re.Pattern[str], frames: Sequence[CodePlace]) -> bool:
    """Whether the name of one of the frames' functions or files matches."""
    return any(
        pattern.search(f"{frame.path.replace(chr(92), '/').rpartition('/')[2]} {frame.function}".lower())
        for frame in frames
    )


def _text_of(frame: CodePlace) -> str:
    path = "/".join(frame.path.replace("\\", "/").split("/")[-3:])
    return f"{path} {frame.function} {frame.code[:400]}".lower()


def _settings_of(topic: Topic, settings: Sequence[RunSetting]) -> Iterator[RunSetting]:
    """The run's settings that turn on a topic's feature."""
    if not topic.settings:
        return
    for setting in settings:
        value = setting.value.strip().lower()
        name = setting.name.replace("-", "_").lower()
        if value in _OFF_VALUES or (value == "1" and _SIZE_PATTERN.search(name)):
            continue
        if re.search(rf"(?:^|\.)(?:{topic.settings})$", name):
            yield setting


@cache
def load_topics() -> tuple[Topic, ...]:
    """All topics of ``topics.toml``, in the file's order."""
    return msgspec.msgpack.decode(toml_values(TOPICS_FILE), type=dict[str, tuple[Topic, ...]])["topics"]
