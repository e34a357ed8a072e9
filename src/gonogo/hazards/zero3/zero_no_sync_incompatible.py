from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    FailureLog,
    Findings,
    Found,
    Hazard,
    LoggedError,
    Pattern,
    Run,
    Script,
    Text,
)
from gonogo.hazards.zero3._no_sync import no_sync_in_script, no_sync_of_trainer
from gonogo.hazards.zero3._partitioned import ZERO3_WORDS, first_match, written

_REFUSED = Pattern(
    r"(?i)no[_ ]sync(?:\(\))? context manager is incompatible|assert not self\.zero_optimization_partition_"
)
_CONFLICT = r"(?:in-?compatib|not compatible|conflict|forbid|assert|冲突|不兼容|不支持)"
_SAID = Pattern(
    rf"(?i)(?:zero|deepspeed).{{0,120}}no[_ ]?sync\b.{{0,120}}{_CONFLICT}"
    rf"|(?:zero|deepspeed).{{0,60}}{_CONFLICT}.{{0,60}}no[_ ]?sync\b"
    rf"|no[_ ]?sync\b.{{0,120}}{_CONFLICT}.{{0,120}}(?:zero|deepspeed)"
    rf"|(?:zero|deepspeed)[ -]?(?:stage)?.{{0,60}}(?:gradient accumulation|梯度累[积加]).{{0,30}}"
    r"(?:in-?compatib|conflict|冲突|不兼容)"
)
_ENTERED = ("accelerate/accelerator.py", "deepspeed/runtime/engine.py", "transformers/trainer.py")


class ZeroNoSyncIncompatible(Hazard):
    """Gradient accumulation through `no_sync` under ZeRO-2 or ZeRO-3.

    ## What happens
    With gradient accumulation above 1 the first step raises "AssertionError: no_sync context manager is incompatible
    with gradient partitioning logic of ZeRO stage 3" (or 2).

    ## Why
    `no_sync` postpones the reduction of gradients, but ZeRO-2 and ZeRO-3 partition them as they arise. DeepSpeed 0.16.0
    gave its engine a `no_sync` that refuses this; before that the engine had none, so the `no_sync` that transformers
    and accelerate enter around accumulated micro-batches did nothing.

    ## Cure
    Newer transformers and accelerate do not enter it under ZeRO-2/3: upgrade them. Where they must stay, install
    `deepspeed<0.16` (0.15.4). In a loop of your own, drop `no_sync` or `accelerator.accumulate(model)`: the engine
    accumulates by itself, by `gradient_accumulation_steps` of its JSON.

    ## When it is safe
    ZeRO-0 and ZeRO-1, or gradient accumulation of 1.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/6793: the report, since 0.16.0
    - https://github.com/huggingface/transformers/pull/35157: Trainer stops entering it under ZeRO-2/3
    - https://github.com/huggingface/accelerate/issues/3481: the same with accelerate alone
    """

    name = "zero-no-sync-incompatible"
    title = Text(
        en="no_sync is entered for gradient accumulation, which ZeRO-2 and ZeRO-3 refuse",
        zh="梯度累积时进入了 no_sync，而 ZeRO-2 与 ZeRO-3 不允许",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Accumulation under ZeRO-2/3 with a DeepSpeed that refuses no_sync and a Trainer that enters it."""
        yield from no_sync_of_trainer(self, config, run)

    def in_script(self, script: Script, run: Run) -> Findings:
        """A loop that enters no_sync, itself or by accelerator.accumulate."""
        yield from no_sync_in_script(self, script, run)

    log_words = (*ZERO3_WORDS, "no_sync context", "no sync context", "no_sync() context")

    def in_log(self, log: FailureLog) -> Findings:
        """DeepSpeed's refusal, which only this brings about; or a traceback that was cut where no_sync is entered."""
        evidence: LoggedError | Found | None = first_match(log, _REFUSED, "AssertionError")
        certainty = Certainty.CERTAIN
        if evidence is None:
            evidence, certainty = _cut(log) or written(log, _SAID), Certainty.LIKELY
        if evidence is not None:
            yield self.log_finding(
                evidence,
                Text(
                    en="transformers, accelerate or the training loop enters no_sync between accumulated "
                    "micro-batches; DeepSpeed since 0.16.0 refuses that where ZeRO partitions the gradients (stages "
                    "2 and 3).",
                    zh="transformers、accelerate 或训练循环在累积的 micro-batch 之间进入 no_sync；DeepSpeed 自 0.16.0 "
                    "起在切分梯度的 ZeRO（2 与 3）下拒绝这样做。",
                ),
                cure=(
                    Text(
                        'Upgrade transformers and accelerate; or pip install "deepspeed<0.16"',
                        '升级 transformers 与 accelerate；或 pip install "deepspeed<0.16"',
                    ),
                    Text(
                        "In a loop of your own drop no_sync / accelerator.accumulate(model), or set "
                        "gradient_accumulation_steps to 1",
                        "自写循环请去掉 no_sync / accelerator.accumulate(model)，或把 gradient_accumulation_steps 设为 "
                        "1",
                    ),
                ),
                certainty=certainty,
            )


def _cut(log: FailureLog) -> LoggedError | None:
    """A traceback that ends within the entering of no_sync, which torch's own never fails at."""
    for error in log.cut:
        frames = [frame for frame in error.frames if "contextlib" not in frame.path]
        last = frames[-1] if frames else None
        if last and last.function == "no_sync" and any(path in last.path for path in _ENTERED):
            return error
    return None
