from gonogo.hazards.facts.installed import describe_package, span_of
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class AutotpDataNotSameInGroup(LoggedHazard):
    """DeepSpeed AutoTP under a data loader that shards over all ranks.
    ## What happens
    `AssertionError: Data inconsistency within the TP group. Please check the Dataloader implementation to ensure
    consistency.` at the first forward.
    ## Why
    Ranks that share a layer have to compute on the same tokens. accelerate before 1.6 (and a `DistributedSampler`
    over the whole world) gives every rank its own batch.
    ## Example
    ```text
    accelerate==1.5.2    # wrong with tensor_parallel.autotp_size > 1
    accelerate==1.6.0    # right
    ```
    ## Cure
    pip install "accelerate>=1.6". In a loop of your own: DistributedSampler(num_replicas=dp_world_size,
    rank=dp_rank), from deepspeed.utils.groups.get_data_parallel_group(). Same seeds for shuffling, random cropping
    and packing on all ranks of a group.
    ## When it is safe
    With autotp_size 1, or a sampler over the data-parallel groups.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/7199: the assertion in a Trainer's run
    - https://github.com/axolotl-ai-cloud/axolotl/issues/2491: accelerate>=1.6.0 is needed
    - https://github.com/axolotl-ai-cloud/axolotl/pull/2574: met again in axolotl's loader
    - https://github.com/deepspeedai/DeepSpeed/issues/7179: what a loop of one's own has to see to
    """

    name = "autotp-data-not-same-in-group"
    title = Text("Ranks of one tensor-parallel group get different batches", "同一张量并行组的 rank 得到不同的 batch")
    log_words = ("Data inconsistency within the TP group",)
    signs = (
        Sign(says=Pattern(r"Data inconsistency within the TP group"), certainty=Certainty.CERTAIN),
        Sign(cut=(("deepspeed/runtime/engine.py", "broadcast_and_check"),), certainty=Certainty.LIKELY),
    )
    cause = Text(
        "DeepSpeed compared the inputs within a tensor-parallel group, and they differ: the data loader "
        "shards over ranks that share layers.",
        "DeepSpeed 比较张量并行组内的输入，发现不一致：数据加载器在共享层的 rank 之间做了切分。",
    )
    cures = (
        Text('pip install "accelerate>=1.6"', '执行 pip install "accelerate>=1.6"'),
        Text(
            "In a loop of your own: DistributedSampler(num_replicas=dp_world_size, rank=dp_rank), from "
            "deepspeed.utils.groups.get_data_parallel_group()",
            "自写循环：DistributedSampler(num_replicas=dp_world_size, rank=dp_rank)，取自 "
            "deepspeed.utils.groups.get_data_parallel_group()",
        ),
        Text(
            "Same seeds for shuffling, random cropping and packing on all ranks of a group",
            "同一组内所有 rank 的打乱、随机裁剪、打包使用相同的随机种子",
        ),
    )
    confirm = Text(
        "The first batch's input_ids differ between ranks 0 and 1", "rank 0 与 rank 1 的首个 batch 的 input_ids 不同"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """AutoTP for training, and an accelerate that doesn't know it."""
        size = config.raw("tensor_parallel", "autotp_size")
        if size.number is None or size.number < 2 or not run.environment.within("accelerate", "<1.6"):
            return
        yield self.finding(
            Text(
                "tensor_parallel.autotp_size is {size}, and {accelerate} gives every rank a batch of its own: "
                "ranks of a "
                "tensor-parallel group need the same.",
                "tensor_parallel.autotp_size 为 {size}，而 {accelerate} 给每个 rank 不同的 batch：张量并行组内必"
                "须相同。",
            ).format(size=int(size.number), accelerate=describe_package(run.environment, "accelerate")),
            certainty=Certainty.LIKELY,
            cure=self.cures[:1],
            spans=(size.span(), span_of(run.environment, "accelerate")),
        )
