import re

from gonogo.evidence.log.cut import cut_in
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.evidence.patterns import compiled_when_used
from gonogo.evidence.rehearsal.failures import failed_ranks, failure_places, shorten
from gonogo.hazards.config._batch_sizes import broken_sizes, found_in_config
from gonogo.hazards.rule import DeepSpeedConfig, FailureLog, Findings, Hazard, Pattern, RehearsalRecord, Run, Text

_IDENTITY = "Check batch related parameters. train_batch_size is not equal to"
_NO_ACCUMULATION = "Gradient accumulation steps: 0 has to be greater than 0"
_LOGGED = (
    "Check batch related parameters",  # in every version; the words after it differ
    "Micro batch size per gpu: 0 has to be greater",
    "Gradient accumulation steps: 0 has to be greater",
    "Train batch size: 0 has to be greater",
)
_TOLD = Pattern(
    r"(?i)train_batch_size.{0,8}(?:is not equal|is not the same|!=|≠|not match|doesn.?t (?:match|equal)"
    r"|不等于|不一致|不匹配).{0,40}(?:micro_?batch|gradient_acc|world_?size)"
)
_NUMBERS = compiled_when_used(r"(\d{1,9})\s{0,4}!=\s{0,4}(\d{1,9})\s{0,4}\*\s{0,4}(\d{1,9})\s{0,4}\*\s{0,4}(\d{1,9})")


class DsBatchSizeWorldSizeMismatch(Hazard):
    """train_batch_size does not equal micro-batch x gradient accumulation x world size.

    ## What happens
    "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu *
    gradient_acc_step * world_size 64 != 4 * 8 * 1", in `deepspeed.initialize` or while the model is loaded.

    ## Why
    DeepSpeed holds the three numbers of its JSON against the number of processes. Either the numbers were written for
    another number of GPUs, or DeepSpeed sees a world size of 1: the script was started without a distributed
    launcher, or the config was read (by `from_pretrained` under ZeRO-3) before `torch.distributed` was initialised.

    ## Cure
    Leave `train_batch_size` out, or set it to "auto" under the Trainer, and DeepSpeed computes it. Where the world
    size is wrong: start with `deepspeed` or `torchrun`, and build `TrainingArguments` before `from_pretrained`.

    ## When it is safe
    With two of the three numbers given, or all three for just this number of GPUs.

    ## Sources
    - https://github.com/bigcode-project/starcoder/issues/77: 64 != 4 * 8 * 1 on two GPUs
    - https://github.com/deepspeedai/DeepSpeed/issues/6914: world size 1 seen, 4 there
    - https://www.deepspeed.ai/docs/config-json/: the identity, under "Batch Size Related Parameters"
    """

    name = "ds-batch-size-world-size-mismatch"
    title = Text(
        en="DeepSpeed's batch sizes do not multiply out for this number of GPUs",
        zh="DeepSpeed 的几个 batch size 与 GPU 数量不相符",
    )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """DeepSpeed's assertion, with its numbers."""
        for failed in failed_ranks(record):
            message = failed.failure.message
            if _IDENTITY not in message and _NO_ACCUMULATION not in message:
                continue
            numbers = _NUMBERS.search(message)
            seen = int(numbers.group(4)) if numbers else record.world_size
            cure = [
                Text(
                    en='Set train_batch_size to {value}, or to "auto" under the Trainer, or leave it out',
                    zh='把 train_batch_size 设为 {value}，在 Trainer 下设为 "auto"，或不写它',
                ).format(value=_right_value(numbers, record.world_size))
            ]
            if seen != record.world_size:
                cure.insert(
                    0,
                    Text(
                        en="DeepSpeed sees {seen} process(es) of {world}: initialise torch.distributed first (build "
                        "TrainingArguments before from_pretrained) and start with deepspeed or torchrun",
                        zh="DeepSpeed 只看到 {world} 个进程中的 {seen} 个：先初始化 torch.distributed（在 "
                        "from_pretrained 之前建立 TrainingArguments），并用 deepspeed 或 torchrun 启动",
                    ).format(seen=seen, world=record.world_size),
                )
            yield self.finding(
                Text(
                    en="The launch starts {world} process(es). DeepSpeed: {message}",
                    zh="此次启动共有 {world} 个进程。DeepSpeed 的原话：{message}",
                ).format(world=record.world_size, message=shorten(message)),
                cure=tuple(cure),
                spans=failure_places(failed.failure),
                ranks=failed.ranks,
            )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Numbers that don't multiply out for the launch's number of processes, or for no number at all."""
        broken = broken_sizes(config, run)
        if broken is not None:
            yield found_in_config(self, broken, config, run)

    log_words = (*_LOGGED, "train_batch_size", "_batch_assertion")

    def in_log(self, log: FailureLog) -> Findings:
        """DeepSpeed's assertion; its last number is the world size that DeepSpeed sees."""
        evidence = first_match(log, *_LOGGED)
        if evidence is None and (found := log.find(_TOLD)):
            evidence = found.line
        if evidence is None:
            evidence = cut_in(log, ("deepspeed/runtime/config", "_batch_assertion"))
        if evidence is None:
            return
        message = matched_text(log, evidence)
        numbers = _NUMBERS.search(message)
        if numbers is None and "has to be greater" in message:
            cause = Text(
                en="train_batch_size is smaller than the number of processes times the other number: DeepSpeed divides "
                "it and is left with 0. It says: {message}",
                zh="train_batch_size 小于进程数与另一个数之积：DeepSpeed 做除法后得到 0。原话：{message}",
            ).format(message=shorten(message))
        else:
            cause = Text(
                en="DeepSpeed's three batch sizes do not multiply out{numbers}. The last number is the world size that "
                "DeepSpeed sees.",
                zh="DeepSpeed 的三个 batch size 不满足等式{numbers}。最后一个数是 DeepSpeed 看到的 world size。",
            ).format(numbers=f" ({numbers.group(0)})" if numbers else "")
        cure = [
            Text(
                en='Set train_batch_size to "auto" under the Trainer, or leave it out: DeepSpeed then computes '
                "micro-batch * accumulation * world size",
                zh='在 Trainer 下把 train_batch_size 设为 "auto"，或不写它：DeepSpeed 会按 micro-batch * 梯度累积 * '
                "world size 计算",
            )
        ]
        if numbers and int(numbers.group(4)) == 1:
            cure.insert(
                0,
                Text(
                    en="If more than one GPU is meant: DeepSpeed sees one process. Start with deepspeed, torchrun or "
                    "accelerate launch, and build TrainingArguments before from_pretrained",
                    zh="若本应使用多张 GPU：DeepSpeed 只看到一个进程。请用 deepspeed、torchrun 或 accelerate launch 启"
                    "动，并在 from_pretrained 之前建立 TrainingArguments",
                ),
            )
        yield self.log_finding(evidence, cause, cure=tuple(cure))


def _right_value(numbers: re.Match[str] | None, world_size: int) -> str:
    """The train_batch_size that the other two numbers give with the real world size."""
    if numbers is None:
        return "train_micro_batch_size_per_gpu * gradient_accumulation_steps * " + str(world_size)
    micro, accumulation = int(numbers.group(2)), int(numbers.group(3))
    return f"{micro * accumulation * world_size} (= {micro} * {accumulation} * {world_size})"
