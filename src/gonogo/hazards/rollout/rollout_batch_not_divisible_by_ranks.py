from gonogo.hazards.rollout._settings import Verl, verl
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RolloutBatchNotDivisibleByRanks(LoggedHazard):
    """verl splits a batch into equal chunks, one a worker, and the batch is not a multiple of their number.
    ## What happens
    "AssertionError: only support equal chunk. Got size of DataProto 60 and chunk 8.", "real_train_batch_size (60) must
    be divisible by minimal possible batch size (8)".
    ## Why
    Each call of a worker group splits its DataProto evenly over the ranks (GPUs of all nodes), and the agent loop over
    its workers (`rollout.agent.num_workers`, 8). The training batch is `data.train_batch_size × rollout.n`; a
    validation set, a last batch, or samples that a filter dropped have any size.
    ## Example
    ```sh
    python -m verl.trainer.main_ppo data.train_batch_size=60 trainer.n_gpus_per_node=8  # wrong
    python -m verl.trainer.main_ppo data.train_batch_size=64 trainer.n_gpus_per_node=8  # right
    ```
    ## Cure
    Make `data.train_batch_size` (and `× rollout.n`) a multiple of all GPUs and of `rollout.agent.num_workers`; pad what
    a filter leaves (`pad_dataproto_to_divisor`), or set `VERL_AUTO_PADDING=TRUE` in newer releases.
    ## When it is safe
    Where the batch divides by GPUs × nodes and by the agent-loop workers; with `actor.use_dynamic_bsz=True` in verl 0.9
    and later, whose trainer (`trainer.use_v1`, the default) fills the batch up with samples that count for nothing.
    ## Sources
    - https://github.com/verl-project/verl/issues/473: batch_size has to be a multiple of the GPUs
    - https://github.com/Unakar/Logic-RL/issues/13: DataProto 2 and chunk 4
    - https://github.com/verl-project/verl/issues/6801: 60 samples for 8 agent-loop workers on two GPUs
    - https://github.com/hiyouga/EasyR1/issues/44: 512 samples on 6 GPUs
    """

    name = "rollout-batch-not-divisible-by-ranks"
    title = Text(
        "The rollout batch does not divide by the workers that share it", "rollout 批次不能被分担它的 worker 数整除"
    )

    ends_at = (("verl/protocol.py", "chunk"),)
    log_words = ("equal chunk", "equal split", "minimal possible batch", "rollout_batch_size")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"only support equal (?:chunk|split)\. Got size of DataProto (?P<batch>\d+) and chunk (?P<ranks>\d+)"
            ),
            Certainty.CERTAIN,
            cause=Text(
                "A batch of {batch} samples is to be split evenly among {ranks} (ranks, or workers of the agent loop).",
                "{batch} 个样本的批次要等分为 {ranks} 份（rank 或 agent loop 的 worker）。",
            ),
        ),
        Sign(
            Pattern(
                r"real_train_batch_size \((?P<batch>\d+)\) must be divisible by minimal possible batch size "
                r"\((?P<ranks>\d+)\)"
            ),
            Certainty.CERTAIN,
            cause=Text(
                "data.train_batch_size × rollout.n is {batch}, which {ranks} GPUs cannot share evenly.",
                "data.train_batch_size × rollout.n 为 {batch}，无法由 {ranks} 张 GPU 平分。",
            ),
        ),
        Sign(Pattern(r"rollout_batch_size.* (?:divisible by|multiple of)|len\(batch_lst\) \(\d+\) != chunks")),
        Sign(
            types=("AssertionError", ""),
            frames=(("protocol.py",), ("in chunk", "chunk(", "dispatch_dp_compute", "_split_args_kwargs_data_proto")),
            certainty=Certainty.LIKELY,
        ),
        Sign(types=("",), frames=(("prompts.chunk(", "arg.chunk("),), certainty=Certainty.LIKELY),
    )
    cause = Text(
        "A batch is to be split evenly among ranks or workers, and it is not a multiple of their number.",
        "批次要在各 rank 或 worker 间等分，而它不是其数目的整数倍。",
    )
    cures = (
        Text(
            "Make data.train_batch_size, and × rollout.n, a multiple of nnodes × n_gpus_per_node and of "
            "rollout.agent.num_workers (8)",
            "让 data.train_batch_size 以及乘以 rollout.n 后的值是 nnodes × n_gpus_per_node 与 "
            "rollout.agent.num_workers（8）的整数倍",
        ),
        Text(
            "Pad batches of other sizes (validation, what a filter leaves): pad_dataproto_to_divisor, "
            "VERL_AUTO_PADDING=TRUE, drop_last",
            "对其他大小的批次（验证、过滤后的批次）进行填充：pad_dataproto_to_divisor、"
            "VERL_AUTO_PADDING=TRUE、drop_last",
        ),
    )
    confirm = (
        Text(
            "The message below the frames gives the batch and the number of chunks", "栈帧下方的消息给出批次大小与份数"
        ),
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """verl's batch and generations against the GPUs of all nodes."""
        command = verl(launch, run)
        if command is None or command.on_megatron:
            return
        gpus = command.gpus
        batch, generations = command.number("data.train_batch_size"), command.number("actor_rollout_ref.rollout.n")
        if gpus is None or batch is None or generations is None or not (batch.given or gpus.given):
            return
        real = batch.value * generations.value
        if real % gpus.value == 0:
            return
        filled = _is_filled_up(command, run)
        if filled is True:
            return
        sure = batch.given and gpus.given and filled is False
        yield self.finding(
            Text(
                "train_batch_size {batch} × rollout.n {n} = {real}, which {gpus} GPUs cannot share evenly: verl "
                "stops before the first step.",
                "train_batch_size {batch} × rollout.n {n} = {real}，无法由 {gpus} 张 GPU 平分：verl 会在第一"
                "步之前停止。",
            ).format(batch=batch.value, n=generations.value, real=real, gpus=gpus.value),
            certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
            cure=Text(
                "Take {less} or {more} for data.train_batch_size", "data.train_batch_size 取 {less} 或 {more}"
            ).format(
                less=max(batch.value // gpus.value, 1) * gpus.value, more=(batch.value // gpus.value + 1) * gpus.value
            ),
            spans=(batch.span or gpus.span, generations.span, gpus.span, launch.place.span()),
            confirm=() if sure else (_WHICH_VERL,) if filled is None else self.confirm,
        )


_WHICH_VERL = Text(
    "pip show verl: from 0.9 on, with use_dynamic_bsz, its trainer fills the batch up",
    "pip show verl：从 0.9 起，启用 use_dynamic_bsz 时其训练器会把批次补齐",
)


def _is_filled_up(command: Verl, run: Run) -> bool | None:
    """Whether verl makes the batch a multiple with samples that count for nothing; None where that can't be told.

    It does from 0.9 on, in its new trainer; but with batches of a fixed size it compares the numbers first.
    """
    dynamic = command.field("actor_rollout_ref.actor.use_dynamic_bsz")
    trainer = command.field("trainer.use_v1")
    new = run.environment.within("verl", ">=0.9")
    if dynamic.absent or dynamic.truth is False or trainer.truth is False or new is False:
        return False
    return True if new and dynamic.truth and (trainer.absent or trainer.truth) else None
