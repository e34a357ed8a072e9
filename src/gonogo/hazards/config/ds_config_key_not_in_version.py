from collections.abc import Mapping

from gonogo.evidence.config.deepspeed_keys import KeyInfo
from gonogo.hazards.config._keys import is_key_known, keys_with_descriptions, rejects_unknown_keys
from gonogo.hazards.facts.deepspeed_settings import (
    config_key_span,
    config_span,
    deepspeed_version_matches,
    describe_deepspeed_version,
    dotted_key,
)
from gonogo.hazards.facts.training_framework import fix_with_edits
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Finding, Findings, Hazard, Run, Severity, translated


def _is_rejected_by_name(info: KeyInfo, run: Run) -> bool:
    """Whether DeepSpeed has an error of its own for this removed key: another hazard."""
    return bool(info.refused) and deepspeed_version_matches(run, f">={info.refused}") is True


class DsConfigKeyNotInVersion(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Keys that the release certainly lacks; those that it rejects by name have a hazard of their own."""
        if run.environment.version("deepspeed") is None and "deepspeed" not in run.environment.packages:
            return
        lacking: tuple[str, ...] | None = None
        for keys, field, info, parent in keys_with_descriptions(config):
            if (
                info is None
                or info.free
                or not (info.since or info.until)
                or (lacking and keys[: len(lacking)] == lacking)
            ):
                continue
            if (
                is_key_known(info, run) is not False
                or _is_rejected_by_name(info, run)
                or (info.deprecated and not info.until)
            ):
                continue
            lacking = keys
            closed = rejects_unknown_keys(parent, run) if len(keys) > 1 else False
            if (field.value == "auto" and closed) or (not closed and field.value in (False, None, "auto")):
                continue
            yield self._build_finding(config, run, keys, info, closed)

    def _build_finding(
        self, config: DeepSpeedConfig, run: Run, keys: tuple[str, ...], info: KeyInfo, closed: bool | None
    ) -> Finding:
        newer = bool(info.since) and deepspeed_version_matches(run, f">={info.since}") is not True
        seen = (
            translated("the key first appears in {release}").format(release=info.since)
            if newer
            else translated("the key last appears in {release}").format(release=info.until)
        )
        want = f"deepspeed>={info.since}" if newer else f"deepspeed<={info.until}"
        instead = info.replacement
        return self.finding(
            translated('{version} has no key "{key}" ({seen}): {consequence}.').format(
                version=describe_deepspeed_version(run),
                key=dotted_key(keys),
                seen=seen,
                consequence=translated("DeepSpeed rejects unknown keys there, and the run stops")
                if closed
                else translated("the setting has no effect"),
            ),
            certainty=Certainty.LIKELY if closed is None else Certainty.CERTAIN,
            severity=Severity.ERROR if closed else Severity.WARNING if newer else Severity.NOTE,
            cure=(
                translated("Use {instead} instead").format(instead=instead)
                if instead
                else translated('Install "{want}"').format(want=want),
                translated("Or remove the key"),
            ),
            spans=(
                config_key_span(config, *keys)
                if isinstance(config.raw(*keys).value, Mapping)
                else config_span(config, *keys),
                run.environment.field("deepspeed").span(),
            ),
            fixes=()
            if instead
            else fix_with_edits(translated("remove the key"), lambda: config.removing(*keys), safe=not closed),
        )
