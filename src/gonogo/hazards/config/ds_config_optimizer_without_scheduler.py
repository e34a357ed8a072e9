from gonogo.evidence.log.cut import cut_in
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.match import first_match
from gonogo.hazards.facts.how_it_trains import fix_of, with_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Text

_REFUSED = (
    "configured in the DeepSpeed config, but no `scheduler`",
    "configured in the DeepSpeed config, but no scheduler",
    "Please configure a scheduler in the DeepSpeed config",
)


class DsConfigOptimizerWithoutScheduler(Hazard):
    """transformers 4.30 to 4.32 refuse a DeepSpeed JSON that names an optimizer and no scheduler.
    ## What happens
    The Trainer stops in `deepspeed_init`: "ValueError: Found `optimizer` configured in the DeepSpeed config, but no
    `scheduler`. Please configure a scheduler in the DeepSpeed config."
    ## Why
    When the Trainer moved to accelerate (4.30), the pair of a DeepSpeed optimizer and a Hugging Face scheduler was
    not supported and is refused. A JSON that worked before stops working with the new version.
    ## Example
    ```json
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}   // wrong alone, with transformers 4.30 to 4.32
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}}   // right beside it
    ```
    ## Cure
    Add a `scheduler` block with "auto" values to the JSON, or take the `optimizer` block out (the Trainer then builds
    AdamW itself), or install transformers 4.33 or later, which takes the pair again.
    ## When it is safe
    With both blocks, with neither, or with a transformers outside 4.30 to 4.32.
    ## Sources
    - https://github.com/huggingface/transformers/issues/24359: the report, and the later release that settles it
    - https://github.com/zjunlp/KnowLM/issues/30: met in pre-training
    """

    name = "ds-config-optimizer-without-scheduler"
    raises = True
    title = Text(
        "The DeepSpeed JSON names an optimizer and no scheduler", "DeepSpeed JSON 中有 optimizer 而没有 scheduler"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """An optimizer block alone, with a transformers that is surely one of the three."""
        optimizer, scheduler = config.raw("optimizer"), config.raw("scheduler")
        if not (optimizer.known and scheduler.absent):
            return
        if run.environment.within("transformers", ">=4.30,<4.33") is not True or with_trainer(run) is False:
            return
        version = run.environment.field("transformers")
        yield self.finding(
            Text(
                "The JSON has an optimizer block and no scheduler block, which transformers {version} refuses.",
                "JSON 中有 optimizer 段而没有 scheduler 段，transformers {version} 拒绝这种组合。",
            ).format(version=version.get("4.30 - 4.32")),
            certainty=Certainty.CERTAIN if with_trainer(run) else Certainty.LIKELY,
            cure=_CURE,
            spans=(
                place.span() if (place := config.key_place("optimizer")) else optimizer.span(),
                version.span(Text("refuses it", "拒绝这种组合")),
            ),
            fixes=fix_of(
                Text("Add a scheduler block", "加入 scheduler 段"),
                lambda: config.inserting("scheduler", value=_SCHEDULER),
                safe=False,
            ),
        )

    log_words = (*_REFUSED, "deepspeed_optim_sched")
    ends_at = (("deepspeed.py", "deepspeed_init"), ("deepspeed.py", "deepspeed_optim_sched"))

    def in_log(self, log: FailureLog) -> Findings:
        """transformers' refusal."""
        evidence = first_match(log, *_REFUSED)
        certainty = Certainty.CERTAIN if evidence else Certainty.LIKELY
        if evidence is None:  # the other refusal of that function came later, and is of Adafactor
            evidence = cut_in(log, ("transformers/", "deepspeed_optim_sched"), within=1)
        if evidence:
            yield self.log_finding(
                evidence,
                Text(
                    "The JSON has an optimizer block and no scheduler block, which this transformers ({version}) "
                    "refuses.",
                    "JSON 中有 optimizer 段而没有 scheduler 段，当前的 transformers（{version}）拒绝这种组合。",
                ).format(version=log.setup.version_texts.get("transformers", "4.30 - 4.32")),
                certainty=certainty,
                cure=_CURE,
            )


_SCHEDULER = {
    "type": "WarmupDecayLR",
    "params": {"total_num_steps": "auto", "warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"},
}
_CURE = (
    Text(
        'Add a scheduler block to the DeepSpeed JSON: {"type": "WarmupDecayLR", "params": {"warmup_min_lr": '
        '"auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}}',
        '在 DeepSpeed JSON 中加入 scheduler 段：{"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", '
        '"warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}}',
    ),
    Text(
        'Or remove the optimizer block, or pip install "transformers>=4.33"',
        '或去掉 optimizer 段，或 pip install "transformers>=4.33"',
    ),
)
