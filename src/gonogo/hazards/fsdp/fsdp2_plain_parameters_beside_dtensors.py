from gonogo.hazards.fsdp._mixed import MIXED
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class Fsdp2PlainParametersBesideDtensors(LoggedHazard):
    """Gradient clipping or the optimizer runs one foreach operator over DTensors and plain tensors together.
    ## What happens
    `aten._foreach_norm.Scalar: got mixed torch.Tensor and DTensor` (or `_foreach_mul_`, `_foreach_lerp_`), raised
    in `clip_grad_norm_` or in the optimizer's step, while the forward and the backward went through.
    ## Why
    FSDP2 turned most parameters into DTensors. Others that are trained were never given to `fully_shard` (only the
    blocks were, and not the model around them; experts kept on the CPU, adapters added later, ignored parameters),
    or are DTensors of another mesh (tensor parallelism on a part). A foreach operator takes one kind only.
    ## Example
    ```python
    # wrong: one clip over both kinds
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    # right: each kind by itself, with the norm of both
    plain = [p for p in model.parameters() if p.grad is not None and not isinstance(p.grad, DTensor)]
    sharded = [p for p in model.parameters() if isinstance(p.grad, DTensor)]
    ```
    ## Cure
    Give all trained parameters to fully_shard: after the blocks also the whole model, which takes embeddings, norms
    and head. Or clip and step the two kinds apart (accelerate and transformers of late 2026 do). Until then:
    max_grad_norm: 0 and an optimizer with foreach=False.
    ## When it is safe
    Where `fully_shard` was given every parameter that is trained, on one mesh.
    ## Sources
    - https://github.com/kvcache-ai/ktransformers/issues/2145: expert LoRA stays plain; `_foreach_mul_` in clipping
    - https://github.com/huggingface/accelerate/pull/4219: accelerate clips the two kinds apart
    - https://github.com/meta-pytorch/torchtune/issues/2420: the same with tensor parallelism on a part of the
      parameters
    - https://github.com/pyg-team/pytorch_geometric/pull/10317: DTensor parameters beside plain ones in one
      optimizer
    """

    name = "fsdp2-plain-parameters-beside-dtensors"
    title = Text(
        "Some trained parameters stay plain tensors beside FSDP2's DTensors",
        "部分被训练的参数仍是普通张量，与 FSDP2 的 DTensor 并存",
    )
    log_words = ("mixed torch.Tensor and DTensor",)
    signs = (
        # Norms are taken of gradients; what else is done to a list may meet states that were loaded, or an average.
        Sign(
            says=Pattern(r"_foreach_norm(?:\.\w+)?:? got mixed torch\.Tensor and DTensor"), certainty=Certainty.CERTAIN
        ),
        Sign(says=Pattern(r"_foreach_\w+(?:\.\w+)?:? got mixed torch\.Tensor and DTensor")),
        Sign(
            says=MIXED,
            frames=(("clip_grad", "torch/optim/", "get_total_norm", "_get_grad_norm"),),
            outside=("forward_backward",),
        ),
    )
    cause = Text(
        "A foreach operator of the gradient clipping or of the optimizer met DTensors and plain tensors: "
        "some of the parameters that are trained were not sharded by FSDP2 (or by the tensor-parallel plan).",
        "梯度裁剪或优化器的 foreach 算子同时遇到 DTensor 与普通张量：部分被训练的参数没有被 FSDP2（或张量并行的方案）"
        "切分。",
    )
    cures = (
        Text(
            "Give all trained parameters to fully_shard: after the blocks call it on the whole model too, which takes "
            "embeddings, norms and head; or clip and step the two kinds apart (accelerate and transformers of late "
            "2026 do)",
            "把全部被训练的参数交给 fully_shard：在各个块之后也对整个模型调用，以包含嵌入、归一化和输出头；或把两种参数"
            "分开裁剪和更新（2026 年末的 accelerate 与 transformers 已如此）",
        ),
        Text(
            "Until then: max_grad_norm: 0 and an optimizer with foreach=False",
            "在此之前：max_grad_norm: 0，并使用 foreach=False 的优化器",
        ),
    )
    confirm = Text(
        "{type(p) for p in model.parameters() if p.requires_grad} has two types",
        "{type(p) for p in model.parameters() if p.requires_grad} 含两种类型",
    )
