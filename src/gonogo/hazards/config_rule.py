"""A hazard of the config that is declared: which setting, which of its values are wrong, and what to say of them.

A class with no line of logic, where nothing else decides::

    class DsSubGroupSizeTiny(ConfigHazard):
        (page, name, title)
        keys = ("zero_optimization.sub_group_size",)
        stages = (3,)
        wrong = number(lambda size: 0 < size < 1_000_000)
        severity, certainty = Severity.WARNING, Certainty.LIKELY
        cause = Text("{key} is {number:,.0f}: …", "{key} 为 {number:,.0f}：…")
        cure = Text("Write 1e9", "写 1e9")
        change = Change(Text("take the default", "使用默认值"), 1_000_000_000, safe=False)

The texts may name ``{key}`` (its last part), ``{path}`` (all of it), ``{section}`` (the part before the last),
``{value}`` (as JSON writes it), ``{number}`` and ``{stage}``; a brace that is meant is doubled. Where more than the
value decides, :meth:`ConfigHazard.around` says so, with further words; :meth:`ConfigHazard.sureness` where the
certainty depends on it. What needs more than that is written as a plain Hazard.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from gonogo.hazards.facts.deepspeed_settings import key_spot, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Field, Findings, Fix, Hazard, Run, Severity, Span, Text

Words = Mapping[str, object]
"""What the placeholders of the texts stand for."""
Wrong = Callable[[Field], bool]
_REMOVED = object()


def true(field: Field) -> bool:
    """A switch that is on."""
    return field.truth is True


def false(field: Field) -> bool:
    """A switch that is off."""
    return field.truth is False


def given(field: Field) -> bool:
    """Any value: what stands around it decides."""
    return field.known


def number(test: Callable[[float], bool]) -> Wrong:
    """A number of which something holds."""
    return lambda field: field.number is not None and test(field.number)


def word(*words: str) -> Wrong:
    """One of these words, in lower or upper case."""
    return lambda field: field.string is not None and field.string.lower() in words


class Setting(msgspec.Struct, frozen=True):
    """A setting whose value is wrong, and the config and the run that it stands in."""

    keys: tuple[str, ...]
    field: Field
    config: DeepSpeedConfig
    run: Run


class Change(msgspec.Struct, frozen=True):
    """The edit that cures it: ``key`` (or else the setting itself) gets ``to`` as its value, or goes."""

    title: Text
    to: Any = _REMOVED
    """The value; ``"{word}"`` is what that word of the texts stands for, as it is: None where nothing is changed."""
    key: str = ""
    safe: bool = True


class ConfigHazard(Hazard):
    """A hazard that is a setting of the DeepSpeed config with a wrong value."""

    keys: ClassVar[tuple[str, ...]]
    """The settings, each by its path; each that is wrong is a finding."""
    wrong: ClassVar[Wrong]
    stages: ClassVar[tuple[int | None, ...]] = (0, 1, 2, 3, None)
    """The ZeRO stages at which it is wrong; None is for a stage that can't be told."""
    fills_in_auto: ClassVar[bool] = False
    """Whether an "auto" counts as the value that it becomes."""
    severity: ClassVar[Severity] = Severity.ERROR
    certainty: ClassVar[Certainty] = Certainty.CERTAIN
    cause: ClassVar[Text]
    cure: ClassVar[Text | tuple[Text, ...]]
    confirm: ClassVar[Text | tuple[Text, ...]] = ()
    """What would make sure of it, where it is not certain."""
    beside: ClassVar[tuple[str, ...]] = ()
    """Further settings that the finding points at."""
    change: ClassVar[Change | None] = None

    def around(self, at: Setting) -> Words | None:
        """What stands around the setting, as further words of the texts; None where that makes the value right."""
        return {}

    def sureness(self, at: Setting) -> Certainty:
        """How sure it is; the declared certainty unless a hazard knows better."""
        return self.certainty

    def spans_beside(self, at: Setting) -> tuple[Span | None, ...]:
        """Further places of the finding: those of the settings ``beside`` it."""
        return tuple(span_in(at.config, *path.split(".")) for path in self.beside)

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Each of the settings whose value is wrong."""
        if config.zero_stage not in self.stages:
            return
        for path in self.keys:
            keys = tuple(path.split("."))
            at = Setting(keys, (config.get if self.fills_in_auto else config.raw)(*keys), config, run)
            if isinstance(at.field.value, list) and not config.raw("autotuning").absent:
                continue  # the values that the autotuner is to try
            more = self.around(at) if type(self).wrong(at.field) else None
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
            certainty, cure = self.sureness(at), self.cure
            whole = isinstance(at.field.value, Mapping)  # an object of many lines is pointed at by its key
            yield self.finding(
                self.cause.format(**words),
                severity=self.severity,
                certainty=certainty,
                cure=tuple(step.format(**words) for step in (cure if isinstance(cure, tuple) else (cure,))),
                spans=((key_spot if whole else span_in)(config, *keys), *self.spans_beside(at)),
                confirm=() if certainty is Certainty.CERTAIN else self.confirm,
                fixes=self._fixes(at, words),
            )

    def _fixes(self, at: Setting, words: Words) -> tuple[Fix, ...]:
        if self.change is None:
            return ()
        change, keys = self.change, tuple(self.change.key.split(".")) if self.change.key else at.keys
        title = change.title.format(**words)
        if change.to is _REMOVED:
            return fix_of(title, lambda: at.config.removing(*keys), safe=change.safe)
        by_word = isinstance(change.to, str) and change.to.startswith("{")
        value = words[change.to.strip("{}")] if by_word else change.to
        if value is None:
            return ()
        return fix_of(title, lambda: at.config.inserting(*keys, value=value), safe=change.safe)
