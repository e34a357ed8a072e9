from gonogo.hazards.facts.deepspeed_settings import config_span, deepspeed_version_matches, describe_deepspeed_version
from gonogo.hazards.facts.nearest import find_similar_name
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, translated

_DEEPSPEED_SCHEDULERS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest")
_TORCH_SCHEDULERS = frozenset(
    {
        *("LambdaLR", "MultiplicativeLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR"),
        *("SequentialLR", "CosineAnnealingLR", "ChainedScheduler", "ReduceLROnPlateau", "CyclicLR", "PolynomialLR"),
        *("CosineAnnealingWarmRestarts", "OneCycleLR"),
    }
)
# transformers' names, with the closest of DeepSpeed's.
_SCHEDULER_ALIASES = {
    "cosine": "WarmupCosineLR",
    "linear": "WarmupDecayLR",
    "constant_with_warmup": "WarmupLR",
    "constant": "WarmupLR",
    "warmuplinearlr": "WarmupDecayLR",
}


class DsSchedulerUnknown(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A type that is no scheduler, or one that the release does not have yet."""
        name = config.raw("scheduler", "type").string
        if name is None or name == "auto" or name in _TORCH_SCHEDULERS:
            return
        late = name == "WarmupCosineLR" and deepspeed_version_matches(run, "<0.12.4")
        if name in _DEEPSPEED_SCHEDULERS and not late:
            return
        near = None if late else _SCHEDULER_ALIASES.get(name.lower()) or find_similar_name(name, _DEEPSPEED_SCHEDULERS)
        yield self.finding(
            translated("{version} does not have the scheduler {name} yet: it was added in 0.12.4.").format(
                version=describe_deepspeed_version(run), name=name
            )
            if late
            else self.texts["cause"].format(name=name),
            cure=(
                translated('Install "deepspeed>=0.12.4"')
                if late
                else translated("Use a scheduler that DeepSpeed has: {near}").format(
                    near=near or ", ".join(_DEEPSPEED_SCHEDULERS)
                ),
                translated('Or remove "scheduler", and choose it with --lr_scheduler_type'),
            ),
            spans=config_span(config, "scheduler", "type"),
        )
