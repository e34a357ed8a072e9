from gonogo.hazards.rollout._settings import verl
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.signs import LoggedHazard, Sign


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
    Where the batch divides by GPUs × nodes and by the agent-loop workers.
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
        yield self.finding(
            Text(
                "train_batch_size {batch} × rollout.n {n} = {real}, which {gpus} GPUs cannot share evenly: verl "
                "stops before the first step.",
                "train_batch_size {batch} × rollout.n {n} = {real}，无法由 {gpus} 张 GPU 平分：verl 会在第一"
                "步之前停止。",
            ).format(batch=batch.value, n=generations.value, real=real, gpus=gpus.value),
            certainty=Certainty.CERTAIN if batch.given and gpus.given else Certainty.LIKELY,
            cure=Text(
                "Take {less} or {more} for data.train_batch_size", "data.train_batch_size 取 {less} 或 {more}"
            ).format(
                less=max(batch.value // gpus.value, 1) * gpus.value, more=(batch.value // gpus.value + 1) * gpus.value
            ),
            spans=(batch.span or gpus.span, generations.span, gpus.span, launch.place.span()),
            confirm=() if batch.given and gpus.given else self.confirm,
        )
