from gonogo.evidence.config.deepspeed_keys import find_key_info, nearest_known_key
from gonogo.hazards.config._keys import rejects_unknown_keys, unknown_keys
from gonogo.hazards.facts.deepspeed_settings import config_span, deepspeed_version_matches, dotted_key
from gonogo.hazards.facts.training_framework import fix_with_edits
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Finding, Findings, Fix, Hazard, Run, Severity, translated


class DsConfigUnknownKey(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Each unknown key, unless it belongs to another level."""
        for keys, field in unknown_keys(config):
            near = nearest_known_key(keys)
            if near is not None and near.rpartition(".")[2] == keys[-1]:
                continue  # the right name at the wrong level
            if keys[0] == "bf16" and (*("fp16",), *keys[1:]) and find_key_info(("fp16", *keys[1:])) is not None:
                continue  # fp16's settings in bf16
            closed = rejects_unknown_keys(find_key_info(keys[:-1]), run) if len(keys) > 1 else False
            if keys[0] == "compile" and closed and not deepspeed_version_matches(run, ">=0.16.9"):
                closed = None  # releases between did not read the section
            if field.value == "auto" and closed:
                closed = False  # DeepSpeed drops what is still "auto" before it checks
            meant = near.rpartition(".")[2] if near and near.rpartition(".")[0] == dotted_key(keys[:-1]) else None
            yield self._build_finding(config, keys, closed, near, meant)

    def _build_finding(
        self,
        config: DeepSpeedConfig,
        keys: tuple[str, ...],
        closed: bool | None,
        suggestion: str | None,
        intended_key: str | None,
    ) -> Finding:
        section = dotted_key(keys[:-1])
        place = config.key_place(*keys)
        fixes: tuple[Fix, ...] = ()
        if (
            intended_key is not None
            and place is not None
            and config.raw(*keys[:-1], intended_key).absent
            and place.source.writable
        ):
            title = translated("rename the key to {meant}").format(meant=intended_key)
            fixes = (self.fix(title, place.edit(f'"{intended_key}"'), safe=False),)
        elif intended_key is None:
            fixes = fix_with_edits(translated("remove the key"), lambda: config.removing(*keys))
        if closed is False:
            cause = translated('DeepSpeed has no key "{key}"{where}: the setting has no effect.')
        else:
            cause = self.texts["cause"]
        where = translated(" in {section}").format(section=section) if section else ""
        return self.finding(
            cause.format(key=keys[-1], where=where),
            certainty=Certainty.CERTAIN if closed else Certainty.POSSIBLE if closed is None else Certainty.LIKELY,
            severity=Severity.ERROR if closed is not False else Severity.WARNING if suggestion else Severity.NOTE,
            cure=(
                translated('Did you mean "{near}"?').format(near=suggestion)
                if suggestion
                else translated("Remove the key")
            ),
            spans=config_span(config, *keys),
            confirm=(translated("Check which DeepSpeed version the run uses"),) if closed is None else (),
            fixes=fixes,
        )
