from gonogo.hazards.rollout._settings import verl
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_MINI = "actor_rollout_ref.actor.ppo_mini_batch_size"


class VerlMiniBatchRefused(LoggedHazard):
    """verl's mini-batch is larger than the batch, or too small for the GPUs that share it.
    ## What happens
    "AssertionError: ppo_mini_batch_size 0 should be larger than 0 after normalization", "normalized ppo_mini_batch_size
    12 should be divisible by ppo_micro_batch_size_per_gpu 8", or the bare line `assert config.data.train_batch_size >=
    config.actor_rollout_ref.actor.ppo_mini_batch_size`.
    ## Why
    ppo_mini_batch_size counts prompts of all GPUs. verl multiplies it by rollout.n and divides it by the GPUs (by
    GPUs ÷ ulysses_sequence_parallel_size with sequence parallelism): that is each rank's share, of which
    ppo_micro_batch_size_per_gpu takes a part. A recipe for fewer GPUs leaves a share of 0; its default is 256, more
    than a small data.train_batch_size.
    ## Example
    ```sh
    python -m verl.trainer.main_ppo data.train_batch_size=16                                               # wrong
    python -m verl.trainer.main_ppo data.train_batch_size=16 actor_rollout_ref.actor.ppo_mini_batch_size=16    # right
    ```
    ## Cure
    ppo_mini_batch_size of at most data.train_batch_size; times rollout.n a multiple of the GPUs, and of GPUs ×
    ppo_micro_batch_size_per_gpu.
    ## When it is safe
    Where ppo_mini_batch_size × rollout.n ÷ GPUs is a whole number of micro-batches.
    ## Sources
    - https://github.com/PRIME-RL/TTRL/issues/43: 0 after normalization, in a published script
    - https://github.com/insait-institute/open-proof-corpus/issues/2: a batch of 16 and a mini-batch of 128
    - https://github.com/sunnweiwei/FoldAgent/issues/13: 32 and 128, in the words of a project's own check
    - https://github.com/verl-project/verl/pull/552: why 0 is refused: the split would never end
    - https://github.com/verl-project/verl/pull/833: the checks against the micro-batch
    """

    name = "verl-mini-batch-refused"
    title = Text("verl's mini-batch does not fit the batch or the GPUs", "verl 的 mini-batch 与批次或 GPU 数不符")
    log_words = ("after normalization", "ppo_mini_batch", "ppo_micro_batch_size")
    anywhere = True
    signs = (
        Sign(
            Pattern(r"ppo_mini_batch_size (?P<share>\d+) should be larger than 0 after normalization"),
            Certainty.CERTAIN,
            cause=Text(
                "Each rank's share of ppo_mini_batch_size × rollout.n is {share}: there are more GPUs than samples.",
                "每个 rank 分到的 ppo_mini_batch_size × rollout.n 为 {share}：GPU 比样本多。",
            ),
        ),
        Sign(
            Pattern(
                r"normalized ppo_mini_batch_size (?P<share>\d+) should be (?P<how>divisible by|larger than) "
                r"ppo_micro_batch_size_per_gpu (?P<micro>\d+)"
            ),
            Certainty.CERTAIN,
            cause=Text(
                "Each rank's share of the mini-batch is {share} samples, no multiple of the micro-batch of {micro}.",
                "每个 rank 分到的 mini-batch 为 {share} 个样本，无法由大小为 {micro} 的 micro-batch 组成。",
            ),
        ),
        Sign(
            Pattern(
                r"assert \S*train_batch_size >= \S*ppo_mini_batch_size|train(?:ing)?_batch_size \S*\s?(?:must|should) "
                r"be "
                r"(?:greater|larger) than \S*ppo_mini_batch"
            ),
            cause=Text(
                "ppo_mini_batch_size is larger than data.train_batch_size.",
                "ppo_mini_batch_size 大于 data.train_batch_size。",
            ),
        ),
        Sign(Pattern(r"\bppo_mini_batch_size\b.*(?:divisible by|larger than)"), Certainty.LIKELY),
    )
    cause = Text(
        "The mini-batch is larger than the batch, or no multiple of what the GPUs take at a time.",
        "mini-batch 大于批次，或不是各 GPU 一次所取数量的整数倍。",
    )
    cures = (
        Text(
            "Set actor_rollout_ref.actor.ppo_mini_batch_size to at most data.train_batch_size, so that × rollout.n it "
            "is a multiple of GPUs × ppo_micro_batch_size_per_gpu",
            "把 actor_rollout_ref.actor.ppo_mini_batch_size 设为不大于 data.train_batch_size，且乘以 rollout.n 后是 "
            "GPU 数 × ppo_micro_batch_size_per_gpu 的整数倍",
        ),
    )
    confirm = Text(
        "ppo_mini_batch_size × rollout.n ÷ GPUs, by hand", "手工计算 ppo_mini_batch_size × rollout.n ÷ GPU 数"
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """verl's mini-batch against its batch and the GPUs, where the command says them."""
        command = verl(launch, run)
        if command is None or command.on_megatron:
            return
        batch, mini = command.number("data.train_batch_size"), command.number(_MINI)
        generations, gpus = command.number("actor_rollout_ref.rollout.n"), command.gpus
        if batch is None or mini is None or not (batch.given or mini.given):
            return
        dynamic = command.field("actor_rollout_ref.actor.use_dynamic_bsz")  # with it verl does not compare the two
        told = dynamic.absent or dynamic.truth is False
        sure = Certainty.CERTAIN if batch.given and mini.given and told else Certainty.POSSIBLE
        if mini.value > batch.value and dynamic.truth is not True:
            cause = Text(
                "ppo_mini_batch_size is {mini}, and data.train_batch_size {batch}: verl refuses to start.",
                "ppo_mini_batch_size 为 {mini}，而 data.train_batch_size 为 {batch}：verl 会拒绝启动。",
            ).format(mini=mini.value, batch=batch.value)
        elif generations and gpus and gpus.given and mini.value * generations.value < gpus.value:
            cause = Text(
                "ppo_mini_batch_size {mini} × rollout.n {n} is less than one sample for each of {gpus} GPUs.",
                "ppo_mini_batch_size {mini} × rollout.n {n} 不足以让 {gpus} 张 GPU 各得一个样本。",
            ).format(mini=mini.value, n=generations.value, gpus=gpus.value)
            sure = Certainty.LIKELY
        else:
            return
        yield self.finding(
            cause,
            certainty=sure,
            cure=self.cures,
            spans=(mini.span or batch.span, batch.span if mini.span else None, launch.place.span()),
            confirm=() if sure is Certainty.CERTAIN else self.confirm,
        )
