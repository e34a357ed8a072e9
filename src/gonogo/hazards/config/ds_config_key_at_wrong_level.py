from collections.abc import Mapping

from gonogo.evidence.config.deepspeed_keys import find_key_info, nearest_known_key
from gonogo.hazards.config._keys import rejects_unknown_keys, unknown_keys
from gonogo.hazards.facts.deepspeed_settings import config_key_span, dotted_key
from gonogo.hazards.facts.training_framework import fix_with_edits
from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    Finding,
    Findings,
    Fix,
    Hazard,
    Run,
    Severity,
    Text,
    translated,
)


class DsConfigKeyAtWrongLevel(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Keys that no release knows at this level, but that all know at another."""
        for keys, field in unknown_keys(config):
            if (keys[0] == "bf16" and len(keys) == 2) or keys == ("optimizer", "params"):
                continue
            near = nearest_known_key(keys)
            if near is None or near.rpartition(".")[2] != keys[-1]:
                continue
            right = tuple(near.split("."))
            closed = rejects_unknown_keys(find_key_info(keys[:-1]), run) if len(keys) > 1 else False
            if field.value == "auto" and closed:
                closed = False
            yield self._build_finding(config, keys, right, closed)

    def _build_finding(
        self, config: DeepSpeedConfig, keys: tuple[str, ...], right: tuple[str, ...], closed: bool | None
    ) -> Finding:
        fixes: tuple[Fix, ...] = ()
        field, target = config.raw(*keys), config.raw(*right[:-1])
        place = (
            Text(dotted_key(right[:-1]), f" {dotted_key(right[:-1])}") if right[:-1] else translated("the top level")
        )
        there = len(right) == 1 or (target.known and isinstance(target.value, Mapping))
        if field.known and there and config.raw(*right).absent:
            fixes = fix_with_edits(
                translated("move it to {place}").format(place=place),
                lambda: config.removing(*keys),
                lambda: config.inserting(*right, value=field.value),
                safe=False,
            )
        at = (
            translated("in {section}").format(section=dotted_key(keys[:-1]))
            if keys[:-1]
            else self.texts["top_level_label"]
        )
        belongs = (
            translated("in {section}").format(section=dotted_key(right[:-1]))
            if right[:-1]
            else self.texts["top_level_label"]
        )
        return self.finding(
            translated('"{key}" is {at} but belongs {belongs}: {consequence}.').format(
                key=keys[-1],
                at=at,
                belongs=belongs,
                consequence=self.texts["key_ignored"] if closed is False else self.texts["extra_key_consequence"],
            ),
            certainty=Certainty.POSSIBLE if closed is None else Certainty.CERTAIN,
            severity=Severity.WARNING if closed is False else Severity.ERROR,
            cure=translated("Move it to {place}").format(place=place),
            spans=(config_key_span(config, *keys), config_key_span(config, *right[:-1]) if right[:-1] else None),
            fixes=fixes,
        )
