from gonogo.hazards.fsdp._flat import FLAT, UNDER_FSDP, UNDER_ZERO
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class FsdpShardedWeightReadOutsideForward(LoggedHazard):
    """A weight that is used beside its own module's forward is a flat shard, or empty.
    ## What happens
    `'weight' must be 2-D`, `mat2 must be a matrix, got 1-D tensor`, `shape '[...]' is invalid for input of size
    ...`, or `the tensor has a non-zero number of elements, but its data is not allocated yet`, under FSDP, in code
    that takes `module.weight`.
    ## Why
    FSDP gathers the parameters of a wrapped module for the time of its forward. A tied head (`F.linear(x,
    embedding.weight)`), a loss that takes `lm_head.weight`, a submodule's method that is called by another module:
    all of them meet what the rank holds between.
    ## Example
    ```python
    # wrong: the embedding is wrapped apart, its weight is read here
    logits = F.linear(hidden, self.embed.weight)
    # right: let FSDP gather it
    with FSDP.summon_full_params(self.embed, recurse=False):
        logits = F.linear(hidden, self.embed.weight)
    ```
    ## Cure
    Call the FSDP module itself (not model.module), and wrap modules that use each other's weights as one unit. Or
    read the weight inside FSDP.summon_full_params(module, recurse=False), on all ranks. FSDP1:
    fsdp_use_orig_params: true for LoRA and tied weights.
    ## When it is safe
    Inside the forward of the FSDP module that owns the weight.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/124019: 'weight' must be 2-D: the inner model is called
    - https://github.com/huggingface/accelerate/issues/2301: weight should have at least three dimensions
    - https://github.com/huggingface/peft/pull/3102: LoRA on MoE reads its weights apart, and meets a shard
    """

    name = "fsdp-sharded-weight-read-outside-forward"
    title = Text(
        "Code reads an FSDP-sharded weight outside the forward of its module",
        "代码在模块 forward 之外读取被 FSDP 切分的权重",
    )
    log_words = (
        "must be 2-D",
        "must be a matrix",
        "size mismatch, got",
        "not allocated yet",
        "is invalid for input of size",
    )
    yields_to = ("fsdp-generate-on-sharded-model",)
    signs = (
        Sign(
            says=FLAT, outside=("deepspeed/", "generation/utils.py", "generate"), beside=UNDER_FSDP, unless=UNDER_ZERO
        ),
        Sign(
            says=Pattern(r"shape '\[[\d, -]+\]' is invalid for input of size \d+"),
            frames=(("get_delta_weight", "lora/layer.py"),),
            beside=UNDER_FSDP,
            unless=UNDER_ZERO,
        ),
        Sign(
            says=Pattern(r"shape '\[[\d, -]+\]' is invalid for input of size \d+"),
            frames=(("get_delta_weight", "lora/layer.py"),),
            unless=UNDER_ZERO,
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "An operator was given what FSDP keeps of a weight between forwards: a flat shard, or no data.",
        "算子得到的是 FSDP 在两次 forward 之间保存的内容：展平的分片，或没有数据。",
    )
    cures = (
        Text(
            "Call the FSDP module itself (not model.module), and wrap modules that use each other's weights "
            "as one unit",
            "调用 FSDP 模块本身（而不是 model.module），并把互相使用权重的模块包装为一个单元",
        ),
        Text(
            "Or read the weight inside FSDP.summon_full_params(module, recurse=False), on all ranks",
            "或在所有 rank 上于 FSDP.summon_full_params(module, recurse=False) 之内读取权重",
        ),
        Text(
            "FSDP1: fsdp_use_orig_params: true for LoRA and tied weights",
            "FSDP1：LoRA 与绑定权重使用 fsdp_use_orig_params: true",
        ),
    )
    confirm = Text(
        "The innermost frame of your own reads a weight of another module", "您代码中最内层的帧读取了另一个模块的权重"
    )
