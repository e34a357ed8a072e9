from gonogo.hazards.fsdp._mixed import MIXED, RECOMPUTES
from gonogo.hazards.rule import Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class Fsdp2CheckpointRecomputeResharded(LoggedHazard):
    """Activation checkpointing runs a block again in the backward, and its parameters are sharded by then.
    ## What happens
    `got mixed torch.Tensor and DTensor` raised from `torch/utils/checkpoint.py` (`recompute_fn`, `unpack_hook`) in
    the backward; the first forward works. DPO, distillation and other losses with several forwards before one
    backward.
    ## Why
    With nested FSDP modules the backward of an inner one reshards its parameters. Another recomputation of the same
    block, for a further forward, finds the outer state `PRE_BACKWARD`, takes the parameters for gathered, and meets
    DTensors.
    ## Example
    ```python
    # wrong: two checkpointed forwards, one backward
    loss = dpo_loss(model(chosen), model(rejected))
    # right: one forward over both
    loss = dpo_loss(*model(torch.cat([chosen, rejected])).chunk(2))
    ```
    ## Cure
    Join the forwards of a step into one (concatenate the batches). Or fully_shard(...,
    reshard_after_forward=False), or leave activation checkpointing off; or a torch with pull 171779.
    ## When it is safe
    With one forward for each backward, or without activation checkpointing.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/153354: the thread, with DPO
    - https://github.com/pytorch/pytorch/pull/171779: the cause, and a fix
    - https://github.com/pytorch/pytorch/pull/175406: what nested FSDP does while a block is recomputed
    """

    name = "fsdp2-checkpoint-recompute-resharded"
    title = Text(
        "FSDP2 resharded parameters that a recomputation still needs", "FSDP2 过早重新切分了重计算仍需要的参数"
    )
    log_words = ("mixed torch.Tensor and DTensor",)
    yields_to = ("fsdp2-method-outside-forward", "fsdp2-plain-parameters-beside-dtensors")
    signs = (Sign(says=MIXED, frames=(RECOMPUTES,)),)
    cause = Text(
        "While a block was recomputed in the backward its parameters were DTensors: FSDP2 had resharded them "
        "after an earlier backward of the same step.",
        "反向中重计算某个块时其参数是 DTensor：在同一步的前一次反向之后，FSDP2 已把它们重新切分。",
    )
    cures = (
        Text(
            "Join the forwards of a step into one (concatenate the batches)", "把一步中的多次前向合为一次（拼接批次）"
        ),
        Text(
            "Or fully_shard(..., reshard_after_forward=False), or leave activation checkpointing off; or a "
            "torch with pull 171779",
            "或使用 fully_shard(..., reshard_after_forward=False)，或关闭激活重计算；或使用包含 pull 171779 的 torch",
        ),
    )
    confirm = Text("It works with activation checkpointing off", "关闭激活重计算后可以运行")
