"""Hazards of the DeepSpeed config declared in a page alone: the setting, its wrong values, and the text.

In the head of a page, if nothing else decides::

    keys = ["zero_optimization.sub_group_size"]
    stages = [3]
    wrong = { above = 0, below = 1_000_000 }
    severity = "warning"
    certainty = "likely"
    cause.en = "{key} is {number:,.0f}: …"
    cause.zh = "{key} 为 {number:,.0f}：…"
    change.title.en = "take the default"
    change.title.zh = "使用默认值"
    change.to = 1_000_000_000
    change.safe = false

The texts may name ``{key}`` (its last part), ``{path}`` (all of it), ``{section}`` (the part before the last),
``{value}`` (as JSON writes it), ``{number}`` and ``{stage}``; a literal brace is doubled. ``cause`` and ``cures`` are
the page's sections *Why* and *Cure* unless the head has them. If more than the value decides, a class beside the page
overrides :meth:`ConfigHazard.placeholder_values`, which also returns further placeholders of the texts, or
:meth:`ConfigHazard.certainty_for` if the certainty depends on it. A hazard that needs more than that is a plain
Hazard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gonogo.hazards.facts.deepspeed_settings import config_key_span, config_span
from gonogo.hazards.facts.training_framework import fix_with_edits, format_json
from gonogo.hazards.hazard import PageDeclarations
from gonogo.hazards.page import HazardPage
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Field, Findings, Fix, Hazard, Run, Span, Text, translated

Words = Mapping[str, object]
"""Values for the placeholders of the texts."""
FieldTest = Callable[[Field], bool]


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of a number, all of which must hold."""

    above: float = -math.inf
    below: float = math.inf
    at_least: float = -math.inf
    at_most: float = math.inf

    def contains(self, number: float) -> bool:
        """Whether a number is within the bounds."""
        return self.above < number < self.below and self.at_least <= number <= self.at_most


Values = bool | Literal["any"] | tuple[str, ...] | Bounds
"""The wrong values: a switch that is on (``true``) or off, any value, one of these words in any case, a number."""


def number_test(test: Callable[[float], bool]) -> FieldTest:
    """A test for numbers that :class:`Bounds` can't express."""
    return lambda field: field.number is not None and test(field.number)


def make_field_test(values: Values) -> FieldTest:
    """The test that a field passes if it has one of the declared values."""
    if isinstance(values, bool):
        return lambda field: field.truth is values
    if isinstance(values, tuple):
        return lambda field: field.string is not None and field.string.lower() in values
    if isinstance(values, Bounds):
        return number_test(values.contains)
    return lambda field: field.known


class SettingInConfig(msgspec.Struct, frozen=True):
    """A setting with its value, the config that has it, and the run."""

    keys: tuple[str, ...]
    field: Field
    config: DeepSpeedConfig
    run: Run


class DeclaredConfigEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The edit that fixes a wrong setting: sets ``key`` (default: the setting itself) to ``to``, or removes it."""

    title: Text
    to: Any = UNSET
    """The value; ``"{word}"`` is replaced by that placeholder's value itself; None means no change."""
    key: str = ""
    safe: bool = True


class ConfigPageDeclarations(PageDeclarations, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the page of a :class:`ConfigHazard` may declare."""

    from_sections: ClassVar[tuple[str, ...]] = ("cause", "cures")

    keys: tuple[str, ...] | UnsetType = UNSET
    wrong: Values | UnsetType = UNSET
    stages: tuple[Literal[0, 1, 2, 3, "unknown"], ...] | UnsetType = UNSET
    fills_in_auto: bool | UnsetType = UNSET
    cause: Text | UnsetType = UNSET
    beside: tuple[str, ...] | UnsetType = UNSET
    change: DeclaredConfigEdit | UnsetType = UNSET


class ConfigHazard(Hazard):
    """A hazard that is a wrong value of a setting of the DeepSpeed config."""

    declares = ConfigPageDeclarations

    keys: tuple[str, ...]
    """Paths of the settings; each wrong one is a finding."""
    wrong: Values | FieldTest
    """The wrong values, or a test for them."""
    stages: tuple[int | str, ...] = (0, 1, 2, 3, "unknown")
    """The ZeRO stages at which they are wrong."""
    fills_in_auto: bool = False
    """Whether an "auto" counts as the value that it becomes."""
    certainty: Certainty = Certainty.CERTAIN
    cause: Text
    cures: tuple[Text, ...]
    beside: tuple[str, ...] = ()
    """Further settings that the finding points at."""
    change: DeclaredConfigEdit | None = None

    def __init__(self, page: HazardPage) -> None:
        """Raises UserError if the page doesn't say which values are wrong."""
        super().__init__(page)
        for key in ("keys", "wrong"):
            if not hasattr(self, key):
                page.refuse(key, translated("this key is missing: add it to the page's head"))
        self._is_wrong: FieldTest = self.wrong if callable(self.wrong) else make_field_test(self.wrong)

    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """Values for further placeholders of the texts; None if the setting is right in this context (no finding)."""
        return {}

    def certainty_for(self, setting: SettingInConfig) -> Certainty:
        """The certainty of the finding: the declared one unless overridden."""
        return self.certainty

    def related_spans(self, setting: SettingInConfig) -> tuple[Span | None, ...]:
        """Further places that the finding points at: those of the settings in ``beside``."""
        return tuple(config_span(setting.config, *path.split(".")) for path in self.beside)

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """One finding for each setting with a wrong value."""
        if ("unknown" if config.zero_stage is None else config.zero_stage) not in self.stages:
            return
        for path in self.keys:
            keys = tuple(path.split("."))
            at = SettingInConfig(keys, (config.get if self.fills_in_auto else config.raw)(*keys), config, run)
            if isinstance(at.field.value, list) and not config.raw("autotuning").absent:
                continue  # candidate values for the autotuner
            more = self.placeholder_values(at) if self._is_wrong(at.field) else None
            if more is None:
                continue
            words = {
                "key": keys[-1],
                "path": path,
                "section": keys[-2] if keys[1:] else "",
                "value": format_json(at.field.value),
                "number": at.field.number,
                "stage": config.zero_stage,
                **more,
            }
            certainty = self.certainty_for(at)
            whole = isinstance(at.field.value, Mapping)  # point at the key of a multi-line object
            yield self.finding(
                self.cause.format(**words),
                severity=self.severity,
                certainty=certainty,
                cure=tuple(step.format(**words) for step in self.cures),
                spans=((config_key_span if whole else config_span)(config, *keys), *self.related_spans(at)),
                fixes=self._build_fixes(at, words),
            )

    def _build_fixes(self, setting: SettingInConfig, words: Words) -> tuple[Fix, ...]:
        if self.change is None:
            return ()
        change, keys = self.change, tuple(self.change.key.split(".")) if self.change.key else setting.keys
        title = change.title.format(**words)
        if change.to is UNSET:
            return fix_with_edits(title, lambda: setting.config.removing(*keys), safe=change.safe)
        by_word = isinstance(change.to, str) and change.to.startswith("{")
        value = words[change.to.strip("{}")] if by_word else change.to
        if value is None:
            return ()
        return fix_with_edits(title, lambda: setting.config.inserting(*keys, value=value), safe=change.safe)
