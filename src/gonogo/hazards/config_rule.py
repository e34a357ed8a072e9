"""Hazards of the DeepSpeed config that are declared: which setting, which of its values are wrong, and what to say.

In the head of a page, where nothing else decides::

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
``{value}`` (as JSON writes it), ``{number}`` and ``{stage}``; a brace that is meant is doubled. ``cause`` and ``cures``
are the page's sections *Why* and *Cure* unless the head has them. Where more than the value decides, a class beside the
page says so: :meth:`ConfigHazard.context_for`, with further words of the texts; :meth:`ConfigHazard.certainty_for`
where the certainty depends on it. What needs more than that is a plain Hazard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gonogo.hazards.facts.deepspeed_settings import config_key_span, config_span
from gonogo.hazards.facts.training_framework import as_json, fix_with_edits
from gonogo.hazards.hazard import PageDeclarations
from gonogo.hazards.page import HazardPage
from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    Field,
    Findings,
    Fix,
    Hazard,
    Run,
    Severity,
    Span,
    Text,
    translated,
)

Words = Mapping[str, object]
"""What the placeholders of the texts stand for."""
FieldTest = Callable[[Field], bool]


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of which all that is given holds."""

    above: float = -math.inf
    below: float = math.inf
    at_least: float = -math.inf
    at_most: float = math.inf

    def holds(self, number: float) -> bool:
        """Whether a number is within."""
        return self.above < number < self.below and self.at_least <= number <= self.at_most


Values = bool | Literal["any"] | tuple[str, ...] | Bounds
"""Which values are wrong: a switch that is on (``true``) or off, any, one of these words in either case, a number."""


def number(test: Callable[[float], bool]) -> FieldTest:
    """A number of which something holds that bounds can't say."""
    return lambda field: field.number is not None and test(field.number)


def make_field_test(values: Values) -> FieldTest:
    """The test that declared values stand for."""
    if isinstance(values, bool):
        return lambda field: field.truth is values
    if isinstance(values, tuple):
        return lambda field: field.string is not None and field.string.lower() in values
    if isinstance(values, Bounds):
        return number(values.holds)
    return lambda field: field.known


class Setting(msgspec.Struct, frozen=True):
    """A setting whose value is wrong, and the config and the run that it stands in."""

    keys: tuple[str, ...]
    field: Field
    config: DeepSpeedConfig
    run: Run


class DeclaredEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The edit that cures it: ``key`` (or else the setting itself) gets ``to`` as its value, or goes."""

    title: Text
    to: Any = UNSET
    """The value; ``"{word}"`` is what that word of the texts stands for, as it is: None where nothing is changed."""
    key: str = ""
    safe: bool = True


class DeclaredInConfigs(PageDeclarations, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the page of a :class:`ConfigHazard` may declare."""

    from_sections: ClassVar[tuple[str, ...]] = ("cause", "cures")

    keys: tuple[str, ...] | UnsetType = UNSET
    wrong: Values | UnsetType = UNSET
    stages: tuple[Literal[0, 1, 2, 3, "unknown"], ...] | UnsetType = UNSET
    fills_in_auto: bool | UnsetType = UNSET
    severity: Severity | UnsetType = UNSET
    certainty: Certainty | UnsetType = UNSET
    cause: Text | UnsetType = UNSET
    cures: tuple[Text, ...] | UnsetType = UNSET
    confirm: Text | tuple[Text, ...] | UnsetType = UNSET
    beside: tuple[str, ...] | UnsetType = UNSET
    change: DeclaredEdit | UnsetType = UNSET


class ConfigHazard(Hazard):
    """A hazard that is a setting of the DeepSpeed config with a wrong value."""

    declares = DeclaredInConfigs

    keys: tuple[str, ...]
    """The settings, each by its path; each that is wrong is a finding."""
    wrong: Values | FieldTest
    """The values that are wrong, or what tells them."""
    stages: tuple[int | str, ...] = (0, 1, 2, 3, "unknown")
    """The ZeRO stages at which it is wrong."""
    fills_in_auto: bool = False
    """Whether an "auto" counts as the value that it becomes."""
    severity: Severity = Severity.ERROR
    certainty: Certainty = Certainty.CERTAIN
    cause: Text
    cures: tuple[Text, ...]
    confirm: Text | tuple[Text, ...] = ()
    """What would make sure of it, where it is not certain."""
    beside: tuple[str, ...] = ()
    """Further settings that the finding points at."""
    change: DeclaredEdit | None = None

    def __init__(self, page: HazardPage) -> None:
        """Raises UserError where the page doesn't say what is wrong."""
        super().__init__(page)
        for key in ("keys", "wrong"):
            if not hasattr(self, key):
                page.refuse(key, translated("is missing: write it into the head"))
        self._is_wrong: FieldTest = self.wrong if callable(self.wrong) else make_field_test(self.wrong)

    def context_for(self, setting: Setting) -> Words | None:
        """What stands around the setting, as further words of the texts; None where that makes the value right."""
        return {}

    def certainty_for(self, setting: Setting) -> Certainty:
        """How sure it is; the declared certainty unless a hazard knows better."""
        return self.certainty

    def spans_beside(self, setting: Setting) -> tuple[Span | None, ...]:
        """Further places of the finding: those of the settings ``beside`` it."""
        return tuple(config_span(setting.config, *path.split(".")) for path in self.beside)

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Each of the settings whose value is wrong."""
        if ("unknown" if config.zero_stage is None else config.zero_stage) not in self.stages:
            return
        for path in self.keys:
            keys = tuple(path.split("."))
            at = Setting(keys, (config.get if self.fills_in_auto else config.raw)(*keys), config, run)
            if isinstance(at.field.value, list) and not config.raw("autotuning").absent:
                continue  # the values that the autotuner is to try
            more = self.context_for(at) if self._is_wrong(at.field) else None
            if more is None:
                continue
            words = {
                "key": keys[-1],
                "path": path,
                "section": keys[-2] if keys[1:] else "",
                "value": as_json(at.field.value),
                "number": at.field.number,
                "stage": config.zero_stage,
                **more,
            }
            certainty = self.certainty_for(at)
            whole = isinstance(at.field.value, Mapping)  # an object of many lines is pointed at by its key
            yield self.finding(
                self.cause.format(**words),
                severity=self.severity,
                certainty=certainty,
                cure=tuple(step.format(**words) for step in self.cures),
                spans=((config_key_span if whole else config_span)(config, *keys), *self.spans_beside(at)),
                confirm=() if certainty is Certainty.CERTAIN else self.confirm,
                fixes=self._fixes(at, words),
            )

    def _fixes(self, setting: Setting, words: Words) -> tuple[Fix, ...]:
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
