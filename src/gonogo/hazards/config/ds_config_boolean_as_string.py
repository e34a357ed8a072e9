from functools import partial

from gonogo.hazards.facts.deepspeed_settings import config_span, deepspeed_version_matches, dotted_key
from gonogo.hazards.facts.training_framework import fix_with_edits, format_json, uses_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, translated

_TOP_LEVEL_KEYS = (
    *("wall_clock_breakdown", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "prescale_gradients"),
    *("memory_breakdown", "dump_state", "disable_allgather"),
)


class DsConfigBooleanAsString(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Quoted booleans at the top level and in ``enabled`` of fp16 and bf16."""
        for keys in (("bf16", "enabled"), ("fp16", "enabled"), *((name,) for name in _TOP_LEVEL_KEYS)):
            field = config.raw(*keys)
            word = field.string.strip().lower() if field.string else ""
            if word not in ("true", "false"):
                continue
            switch = keys[-1] == "enabled"
            if switch and (uses_trainer(run) or deepspeed_version_matches(run, ">=0.17.2")):
                continue  # transformers' comparison has its own hazard; newer releases parse the string as intended
            refused = keys == ("wall_clock_breakdown",)
            wrong = word == "false"
            certainty = Certainty.CERTAIN if refused else Certainty.LIKELY
            severity = Severity.ERROR if refused or wrong else Severity.WARNING
            value = word == "true"
            yield self.finding(
                translated('"{key}" is the string {text}: {consequence}.').format(
                    key=dotted_key(keys),
                    text=format_json(field.value),
                    consequence=self.texts["not_boolean_consequence"]
                    if refused
                    else self.texts["taken_for_true"]
                    if wrong
                    else self.texts["only_by_chance"],
                ),
                certainty=certainty,
                severity=severity,
                cure=translated("Write {word} without the quotes").format(word=word),
                spans=config_span(config, *keys),
                fixes=fix_with_edits(
                    translated("remove the quotes"), partial(config.replacing, *keys, value=value), safe=not wrong
                ),
            )
