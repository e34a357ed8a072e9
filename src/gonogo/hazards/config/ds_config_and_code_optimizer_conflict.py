from gonogo.evidence.log.cut import cut_in
from gonogo.evidence.log.match import first_match
from gonogo.hazards.config._optimizers import optimizers_against_config
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Run, Script, Text

_BOTH = (
    "You cannot specify an optimizer in the config file and in the code",
    "cannot specify an optimizer in the config file and in the code",
    "You cannot specify a scheduler in the config file and in the code",
)
_PASSED = (
    "Passing `optimizers` is not allowed if Deepspeed",
    "Passing `optimizers` is not allowed if PyTorch FSDP or DeepSpeed",
    "Passing `optimizers` is not allowed if Fairscale, Deepspeed",
)


class DsConfigAndCodeOptimizerConflict(Hazard):
    """The optimizer (or scheduler) is defined in the DeepSpeed JSON and in the code.

    ## What happens
    `accelerator.prepare` or the Trainer stops before the first step: "ValueError: You cannot specify an optimizer in
    the config file and in the code at the same time". The same exists for the scheduler.

    ## Why
    DeepSpeed builds the optimizer that its JSON names. A second one arrives from the code: a torch optimizer given to
    `accelerator.prepare`, an optimizer that the framework builds itself (GaLore, BAdam, LoRA+, a trainer of trl), or
    `optimizers=` of the Trainer.

    ## Cure
    Define it once. Remove the `optimizer` (and `scheduler`) block from the JSON, or keep it and give
    `accelerate.utils.DummyOptim` (`DummyScheduler`) in the code. GaLore updates full gradients and does not work with
    ZeRO's partitioned ones: use it without DeepSpeed.

    ## When it is safe
    Where only one place defines each of the two.

    ## Sources
    - https://github.com/modelscope/ms-swift/issues/1763: GaLore with a JSON that names an optimizer
    - https://github.com/hiyouga/LlamaFactory/issues/2777: the same with the Trainer's own refusal
    """

    name = "ds-config-and-code-optimizer-conflict"
    title = Text(
        en="The optimizer is defined both in the DeepSpeed JSON and in the code",
        zh="优化器同时在 DeepSpeed JSON 和代码中定义",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """accelerate.prepare with an optimizer beside the config's, or a Trainer that is given optimizers."""
        yield from optimizers_against_config(self, script, run)

    log_words = ("_prepare_deepspeed", "in the config file and in the code", "Passing `optimizers` is not allowed")

    def in_log(self, log: FailureLog) -> Findings:
        """accelerate's refusal, or the Trainer's where an optimizer object is passed under DeepSpeed."""
        if evidence := first_match(log, *_BOTH):
            yield self.log_finding(evidence, _CAUSE, cure=_CURE)
        elif evidence := first_match(log, *_PASSED):
            deepspeed = log.setup.mentions("(?i)deepspeed") or log.setup.zero_stage is not None
            yield self.log_finding(
                evidence,
                _CAUSE_PASSED,
                cure=_CURE[1:],
                certainty=Certainty.LIKELY if deepspeed else Certainty.POSSIBLE,
                confirm=(
                    Text(
                        en="The launch uses --deepspeed, and the code or an option such as use_galore builds an "
                        "optimizer",
                        zh="启动命令使用 --deepspeed，且代码或 use_galore 之类的选项自建优化器",
                    ),
                ),
            )
        elif (cut := cut_in(log, ("accelerate/accelerator", "_prepare_deepspeed"), within=1)) and cut.frame(
            "raise ValueError"
        ):
            yield self.log_finding(
                cut,
                _CAUSE,
                cure=_CURE,
                certainty=Certainty.POSSIBLE,
                confirm=(
                    Text(
                        en="The line after it names an optimizer or a scheduler, not a batch size",
                        zh="其后一行提到的是 optimizer 或 scheduler，而不是 batch size",
                    ),
                ),
            )


_CAUSE = Text(
    en="The DeepSpeed JSON has an optimizer or scheduler block, and the code hands over its own: accelerate takes only "
    "one of them.",
    zh="DeepSpeed JSON 中有 optimizer 或 scheduler 段，代码又传入了自己的：accelerate 只接受其中一个。",
)
_CAUSE_PASSED = Text(
    en="The code hands the Trainer an optimizer object of its own, which it does not take where DeepSpeed (or FSDP) "
    "shards the optimizer.",
    zh="代码把自建的优化器对象传给 Trainer；由 DeepSpeed（或 FSDP）切分优化器时，Trainer 不接受它。",
)
_CURE = (
    Text(
        en="Remove the optimizer (and scheduler) block from the DeepSpeed JSON, or use accelerate.utils.DummyOptim / "
        "DummyScheduler in the code",
        zh="从 DeepSpeed JSON 中去掉 optimizer（和 scheduler）段，或在代码中使用 accelerate.utils.DummyOptim / "
        "DummyScheduler",
    ),
    Text(
        en="With GaLore or another optimizer that the framework builds: turn it off, or train without DeepSpeed",
        zh="若使用 GaLore 等由框架自建的优化器：关闭它，或不使用 DeepSpeed",
    ),
)
