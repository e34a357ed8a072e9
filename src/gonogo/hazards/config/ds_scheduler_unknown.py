from gonogo.hazards.config._nearest import nearest
from gonogo.hazards.facts.deepspeed_settings import newer_than, span_in, version_words
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text

_DEEPSPEEDS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest")
_TORCHS = frozenset(
    {
        *("LambdaLR", "MultiplicativeLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR"),
        *("SequentialLR", "CosineAnnealingLR", "ChainedScheduler", "ReduceLROnPlateau", "CyclicLR", "PolynomialLR"),
        *("CosineAnnealingWarmRestarts", "OneCycleLR"),
    }
)
# transformers' names, and what comes nearest to each.
_MEANT = {
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
        if name is None or name == "auto" or name in _TORCHS:
            return
        late = name == "WarmupCosineLR" and newer_than(run, "<0.12.4")
        if name in _DEEPSPEEDS and not late:
            return
        near = None if late else _MEANT.get(name.lower()) or nearest(name, _DEEPSPEEDS)
        yield self.finding(
            Text(
                "{version} has no scheduler {name} yet: it came with 0.12.4.",
                "{version} 还没有调度器 {name}：它自 0.12.4 起提供。",
            ).format(version=version_words(run), name=name)
            if late
            else Text(
                '"{name}" is no scheduler of DeepSpeed\'s and no class of torch.optim.lr_scheduler.',
                "“{name}” 既不是 DeepSpeed 的调度器，也不是 torch.optim.lr_scheduler 的类。",
            ).format(name=name),
            cure=(
                Text('Install "deepspeed>=0.12.4"', "安装 “deepspeed>=0.12.4”")
                if late
                else Text("Write {near}", "写 {near}").format(near=near or ", ".join(_DEEPSPEEDS)),
                Text(
                    'Or remove "scheduler", and choose it with --lr_scheduler_type',
                    "或去掉 “scheduler”，用 --lr_scheduler_type 选择",
                ),
            ),
            spans=span_in(config, "scheduler", "type"),
        )
