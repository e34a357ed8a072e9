from gonogo.hazards.fsdp._mixed import MIXED
from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class Fsdp2UnusedDtensorParameter(LoggedHazard):
    """Under FSDP2 with tensor parallelism a parameter took no part in a forward, and its zeros are a DTensor.
    ## What happens
    `fsdp.chunk_cat.default: got mixed torch.Tensor and DTensor` in `foreach_reduce`, in the backward of a step in
    which some experts or a modality were not used.
    ## Why
    All ranks have to reduce the same parameters, so FSDP2 (torch 2.11 and later, where asked) fills in zeros for
    one that got no gradient: `torch.zeros_like` of a DTensor is a DTensor, the other gradients are local tensors.
    ## Example
    ```python
    # wrong with a torch that lacks the fix: experts without tokens get no gradient
    out = experts[chosen](x)
    # right: every expert takes part, with weight zero
    out = experts[chosen](x) + 0.0 * sum(p.sum() for p in unused.parameters())
    ```
    ## Cure
    Install a torch with pull 183040. Or let every parameter take part in each step (0.0 * sum of the unused
    parameters), or shard without tensor parallelism.
    ## When it is safe
    Without tensor or expert parallelism, or where every parameter is used in every step.
    ## Sources
    - https://github.com/pytorch/pytorch/pull/183040: the cause, and the fix
    - https://github.com/NVIDIA-NeMo/Automodel/pull/3540: met with MoE and context parallelism
    - https://github.com/pytorch/torchtitan/issues/2747: torchtitan's thread on it
    """

    name = "fsdp2-unused-dtensor-parameter"
    title = Text(
        "FSDP2 cannot reduce the gradient of a tensor-parallel parameter that was not used",
        "FSDP2 无法规约未被使用的张量并行参数的梯度",
    )
    log_words = ("mixed torch.Tensor and DTensor",)
    signs = (
        Sign(says=Pattern(r"chunk_cat(?:\.\w+)?:? got mixed torch\.Tensor and DTensor")),
        Sign(says=MIXED, frames=(("foreach_reduce",),)),
    )
    cause = Text(
        "FSDP2's reduce-scatter got a DTensor among local gradients: the zeros that it made for a "
        "tensor-parallel parameter without a gradient.",
        "FSDP2 的 reduce-scatter 在本地梯度中遇到 DTensor：那是它为没有梯度的张量并行参数补的零。",
    )
    cures = (
        Text("Install a torch with pull 183040", "安装包含 pull 183040 的 torch"),
        Text(
            "Or let every parameter take part in each step (0.0 * sum of the unused parameters), or shard "
            "without tensor parallelism",
            "或让每个参数在每一步都参与（加上 0.0 * 未使用参数之和），或不使用张量并行",
        ),
    )
    confirm = Text(
        "The parameters without a gradient after backward are of the part that is tensor-parallel",
        "反向之后没有梯度的参数属于做张量并行的部分",
    )
