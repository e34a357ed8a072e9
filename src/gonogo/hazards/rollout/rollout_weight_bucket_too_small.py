from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RolloutWeightBucketTooSmall(LoggedHazard):
    """verl sends weights to the rollout engine in buckets, and one weight is larger than a bucket.
    ## What happens
    "AssertionError: Weight model.embed_tokens.weight(torch.Size([151936, 4096]), torch.float32) is too large to fit
    in the bucket. Please increase rollout.update_weights_bucket_megabytes(2048 MB)", at the first update of
    weights.
    ## Why
    The bucket (2048 MiB unless told) is a buffer that trainer and engine share; a weight goes into one bucket as a
    whole. Embeddings of large vocabularies in float32 (151936 x 4096 x 4 bytes = 2374 MiB), and the experts that
    transformers 5 keeps as one weight, are larger. Newer releases of verl split them.
    ## Example
    ```sh
    … actor_rollout_ref.actor.fsdp_config.model_dtype=fp32                                                       # wrong
    … actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=4096                           # right
    ```
    ## Cure
    Set `actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes` above the weight's size: elements
    x bytes / 1048576. Both sides hold the buffer on the GPU: lower gpu_memory_utilization by as much. Weights in bf16
    halve it.
    ## When it is safe
    Where the largest weight is smaller than a bucket, or verl sends large ones in pieces.
    ## Sources
    - https://github.com/verl-project/verl/issues/5952: Qwen3-VL-8B with the example's settings
    - https://github.com/verl-project/verl/issues/5779: the embeddings of Qwen3.5-27B
    - https://github.com/verl-project/verl/pull/5963: what is compared, and the size of the embeddings
    - https://github.com/verl-project/verl/pull/6091: large weights in pieces
    """

    name = "rollout-weight-bucket-too-small"
    title = Text("A weight is larger than the bucket that weights are sent in", "某个权重大于用来传送权重的 bucket")
    log_words = ("fit in the bucket", "update_weights_bucket")
    signs = (
        Sign(
            Pattern(
                r"Weight (?P<name>[\w.]+)\s*\((?P<shape>torch\.Size\(\[[\d, ]+\]\)), (?P<dtype>[\w.]+)\) is too large "
                r"to "
                r"fit in the bucket"
            ),
            Certainty.CERTAIN,
            cause=Text(
                "{name} ({shape}, {dtype}) is larger than the bucket in which weights go to the rollout engine.",
                "{name}（{shape}，{dtype}）大于向 rollout 引擎传送权重的 bucket。",
            ),
        ),
        Sign(Pattern(r"(?:[Ww]eight .*too large to fit in the bucket|increase rollout\.update_weights_bucket)")),
    )
    cause = Text(
        "A weight is larger than the bucket in which weights go to the rollout engine.",
        "某个权重大于向 rollout 引擎传送权重的 bucket。",
    )
    cures = (
        Text(
            "Set actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes above the weight's size "
            "in "
            "MiB, and lower gpu_memory_utilization by as much",
            "把 actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes 设得大于该权重的 MiB 数，"
            "并相应"
            "降低 gpu_memory_utilization",
        ),
    )
    confirm = Text(
        "Elements of the largest weight x bytes of its dtype is more than the bucket",
        "最大权重的元素数 × dtype 字节数大于 bucket",
    )
