from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class Fsdp2EmptyShardOnRank(LoggedHazard):
    """FSDP2 shards the first dimension; a parameter that is shorter there than the number of ranks leaves ranks with
    nothing.
    ## What happens
    On the last ranks only: `NotImplementedError: Cannot copy out of meta tensor; no data!` when a model is
    materialised or loaded, or `FSDP does not support uneven sharding on dim ...`, or an assertion about a parameter
    that is unevenly sharded.
    ## Why
    A tensor of shape [4, N] (experts, a small head, a gate) over 8 ranks is split into pieces of one row, and ranks
    4 to 7 hold none. `to()` of an empty piece on the meta device, tensor subclasses and shards of other dimensions
    do not bear that.
    ## Example
    ```python
    # wrong on 8 ranks: 4 experts in the first dimension
    fully_shard(experts)
    # right: another dimension, which the ranks divide
    fully_shard(experts, shard_placement_fn=lambda p: Shard(1))
    ```
    ## Cure
    Shard another dimension of that parameter (shard_placement_fn), or keep it out of fully_shard (ignored_params).
    Fewer ranks in the shard group (hybrid sharding), or materialise with to_empty() after sharding.
    ## When it is safe
    Where each parameter's first dimension is at least as large as the number of ranks that share it.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/164554: the meta tensor of an empty shard
    - https://github.com/pytorch/pytorch/issues/115310: what uneven shards do to full_tensor()
    - https://github.com/pytorch/torchtitan/pull/4593: uneven and empty shards with TP and EP
    """

    name = "fsdp2-empty-shard-on-rank"
    title = Text(
        "A parameter has fewer rows than FSDP2 has ranks, so that some rank's shard is empty",
        "某个参数的行数少于 FSDP2 的 rank 数，部分 rank 的分片为空",
    )
    log_words = ("Cannot copy out of meta tensor", "uneven sharding", "unevenly sharded", "requires even sharding")
    yields_to = ("zero3-weights-left-on-meta",)
    ends_at = (("fsdp/_fully_shard/_fully_shard.py", "_apply"),)
    signs = (
        Sign(says=Pattern(r"FSDP does not support uneven sharding on dim")),
        Sign(says=Pattern(r"When a parameter is unevenly sharded by FSDP|Shard\(\d\) requires even sharding")),
        Sign(
            says=Pattern(r"Cannot copy out of meta tensor; no data"),
            frames=(("fully_shard", "_fsdp_param", "tensor/_api.py"),),
        ),
        Sign(says=Pattern(r"Cannot copy out of meta tensor; no data"), beside=Pattern(r"fully_shard|(?i:fsdp_?2\b)")),
        Sign(
            says=Pattern(r"Cannot copy out of meta tensor; no data"),
            unless=Pattern(r"(?i)deepspeed|device_map|zero_?3|FullyShardedDataParallel|load_in_[48]bit"),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "FSDP2 met a parameter that it cannot divide evenly over the ranks: a rank's piece of it is empty.",
        "FSDP2 遇到无法在各 rank 之间均匀切分的参数：某个 rank 的分片是空的。",
    )
    cures = (
        Text(
            "Shard another dimension of that parameter (shard_placement_fn), or keep it out of fully_shard "
            "(ignored_params)",
            "对该参数的另一维切分（shard_placement_fn），或不交给 fully_shard（ignored_params）",
        ),
        Text(
            "Fewer ranks in the shard group (hybrid sharding), or materialise with to_empty() after sharding",
            "减少切分组的 rank 数（混合切分），或在切分之后用 to_empty() 实体化",
        ),
    )
    confirm = Text(
        "A parameter's first dimension is smaller than the number of ranks, and only the last ranks fail",
        "某个参数的第一维小于 rank 数，且只有靠后的 rank 失败",
    )
