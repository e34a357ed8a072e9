from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class DdpBuffersBroadcastBetweenForwards(LoggedHazard):
    """A model with buffers is called twice before one backward, and DDP overwrites the buffers in between.
    ## What happens
    "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation:
    [torch.cuda.FloatTensor [768]] is at version 3; expected version 2 instead." Only under DistributedDataParallel,
    not on one GPU.
    ## Why
    Before each forward DDP copies rank 0's buffers (running statistics of BatchNorm, a queue, an EMA) over this
    rank's, in place (`broadcast_buffers=True`). The first forward has kept them for its backward: their version is
    another now. GANs (real, then fake), contrastive learning, teacher and student, two views call the model twice.
    ## Example
    ```python
    model = DDP(model, device_ids=[rank])                             # wrong with two forwards before backward
    model = DDP(model, device_ids=[rank], broadcast_buffers=False)    # right
    ```
    ## Cure
    `broadcast_buffers=False` (accelerate: `DistributedDataParallelKwargs(broadcast_buffers=False)`; Trainer:
    `ddp_broadcast_buffers=False`), with `SyncBatchNorm` where statistics have to agree; or one forward of both inputs
    joined, or a backward after each.
    ## When it is safe
    With one forward for each backward, without buffers, or with a torch that keeps their version (newer than 2.11).
    ## Sources
    - https://github.com/pytorch/pytorch/issues/22095: a model with a buffer that is called twice
    - https://github.com/pytorch/pytorch/issues/110363: BatchNorm under DDP; broadcast_buffers=False or SyncBatchNorm
    - https://github.com/pytorch/pytorch/issues/175024: the GAN's two forwards, with torch 2.6 and newer
    """

    name = "ddp-buffers-broadcast-between-forwards"
    title = Text(
        "DDP overwrites buffers between two forwards of one backward", "DDP 在同一次反向的两次前向之间覆盖了缓冲区"
    )
    log_words = ("inplace operation",)
    signs = (
        Sign(
            Pattern(r"variables needed for gradient computation has been modified by an inplace operation"),
            Certainty.POSSIBLE,
            beside=Pattern(r"DistributedDataParallel|nn/parallel/distributed\.py|\bDDP\b"),
        ),
        Sign(
            Pattern(
                r"variables needed for gradient computation has been modified by an inplace operation: "
                r"\[?torch\.cuda\.(?:\w*(?:Float|Half|BFloat16)Tensor \[\d+\]|(?:Long|Int)Tensor \[[\d, ]+\])\]"
            ),
            Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "A tensor that backward needs was overwritten: under DistributedDataParallel mostly a buffer (BatchNorm's "
        "statistics) that is broadcast before a second forward.",
        "反向所需的张量被覆盖：在 DistributedDataParallel 下多为第二次前向之前广播的缓冲区（BatchNorm 的统计量）。",
    )
    cures = (
        Text(
            "DDP(…, broadcast_buffers=False) (Trainer: ddp_broadcast_buffers=False), with SyncBatchNorm where the "
            "statistics have to agree",
            "DDP(…, broadcast_buffers=False)（Trainer：ddp_broadcast_buffers=False），统计量需要一致时配合 "
            "SyncBatchNorm",
        ),
        Text(
            "Or one forward of both inputs joined, or a backward after each forward",
            "或把两个输入合并为一次前向，或每次前向后各做一次反向",
        ),
    )
    confirm = Text(
        "It runs on one GPU without DDP; torch.autograd.set_detect_anomaly(True) names the forward line",
        "单卡不用 DDP 时可以运行；torch.autograd.set_detect_anomaly(True) 会指出前向的那一行",
    )
