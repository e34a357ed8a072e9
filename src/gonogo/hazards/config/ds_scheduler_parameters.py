from collections.abc import Mapping
from functools import partial

from gonogo.hazards.facts.deepspeed_settings import (
    config_key_span,
    config_span,
    deepspeed_version_matches,
    describe_deepspeed_version,
)
from gonogo.hazards.facts.training_framework import fix_with_edits, uses_accelerate
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text, translated

_WARMUP_PARAMETERS = ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "last_batch_iteration")
_PARAMETERS_OF_SCHEDULER = {
    "WarmupLR": frozenset(_WARMUP_PARAMETERS),
    "WarmupDecayLR": frozenset({*_WARMUP_PARAMETERS, "total_num_steps"}),
    "WarmupCosineLR": frozenset(
        {
            "total_num_steps",
            "warmup_min_ratio",
            "warmup_num_steps",
            "cos_min_ratio",
            "warmup_type",
            "last_batch_iteration",
        }
    ),
}
_TOTAL_NUM_STEPS_KEYS = ("scheduler", "params", "total_num_steps")


def _accepting_schedulers_text(key: str) -> Text:
    """A clause that lists the schedulers that accept a parameter; empty if none does."""
    having = [name for name, taken in _PARAMETERS_OF_SCHEDULER.items() if key in taken]
    return Text(f": {', '.join(having)}", f"：{'、'.join(having)}") if having else Text("", "")


class DsSchedulerParameters(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Missing and unknown parameters of DeepSpeed's own schedulers."""
        name = config.raw("scheduler", "type").string or ""
        taken = _PARAMETERS_OF_SCHEDULER.get(name)
        params = config.raw("scheduler", "params")
        if taken is None or params.unknown:
            return
        given = params.value if isinstance(params.value, Mapping) else {}
        if "total_num_steps" in taken and "total_num_steps" not in given:
            filled_in = fix_with_edits(
                translated("let transformers fill it in"),
                partial(config.inserting, *_TOTAL_NUM_STEPS_KEYS, value="auto"),
                safe=False,
            )
            yield self.finding(
                translated("{name} needs total_num_steps, but it is not set.").format(name=name),
                cure=translated('Set "total_num_steps" to the number of steps, or to "auto" under transformers'),
                spans=config_key_span(config, "scheduler", "params") or config_span(config, "scheduler", "type"),
                fixes=filled_in if uses_accelerate(run) else (),
            )
        for key in given:
            if key not in taken:
                yield self.finding(
                    translated("{name} takes no parameter {key}: building the scheduler raises TypeError.").format(
                        name=name, key=key
                    ),
                    cure=translated("Remove the parameter, or use a scheduler that accepts it{which}").format(
                        which=_accepting_schedulers_text(key)
                    ),
                    spans=config_span(config, "scheduler", "params", key),
                    fixes=fix_with_edits(
                        translated("remove the parameter"),
                        partial(config.removing, "scheduler", "params", key),
                        safe=False,
                    ),
                )
        warmup = config.raw("scheduler", "params", "warmup_num_steps")
        steps = warmup.value
        counted = isinstance(steps, (int, float)) and not isinstance(steps, bool)
        if counted and (steps <= 0 or isinstance(steps, float)) and deepspeed_version_matches(run, ">=0.19.3"):
            yield self.finding(
                translated("warmup_num_steps is {value}; {version} accepts only integers above 0.").format(
                    value=steps, version=describe_deepspeed_version(run)
                ),
                cure=translated("Set warmup_num_steps to 1 for almost no warm-up")
                if steps < 1
                else translated("Set warmup_num_steps to {steps}").format(steps=int(steps)),
                spans=config_span(config, "scheduler", "params", "warmup_num_steps"),
            )
