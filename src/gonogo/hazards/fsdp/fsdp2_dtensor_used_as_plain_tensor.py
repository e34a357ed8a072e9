from gonogo.hazards.fsdp._mixed import GENERATES, MIXED, RECOMPUTES
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_LOADS = Pattern(r"aten\.(?:copy_|_to_copy|clone|set_)[.\w]*:? got mixed torch\.Tensor")
"""What is said where a weight is copied, as a loader does."""


class Fsdp2DtensorUsedAsPlainTensor(LoggedHazard):
    """An optimizer, a callback or a kernel takes a DTensor for a tensor.
    ## What happens
    `found no DeviceMesh from dtensor args for c10d.allreduce_.default`, `'DTensor' object has no attribute ...`,
    `Attempted to access the data pointer on an invalid python storage`, or `got mixed torch.Tensor and DTensor` in
    an optimizer or callback of one's own.
    ## Why
    Under FSDP2 `model.parameters()` are DTensors outside of forward: `dist.all_reduce(p.grad)`, a Muon that mixes
    them with buffers of its own, a weight monitor, an EMA or a Triton kernel has to use the local shard or the full
    tensor.
    ## Example
    ```python
    # wrong
    dist.all_reduce(p.grad)
    # right: FSDP2 has reduced it already; the shard is
    shard = p.grad.to_local()
    # and the whole of it, on all ranks
    whole = p.grad.full_tensor()
    ```
    ## Cure
    Give it the local shard (p.to_local()) or the whole (p.full_tensor(), on all ranks). Use an optimizer made for
    DTensors (torch.optim, torch.optim.Muon of a recent torch), or FSDP1.
    ## When it is safe
    Inside forward, where FSDP2 puts plain gathered tensors in place.
    ## Sources
    - https://github.com/mosaicml/composer/issues/3920: an optimizer monitor reduces DTensors
    - https://github.com/pytorch/pytorch/issues/153354: what the mixture means
    - https://github.com/pytorch/pytorch/issues/114299: parameters of FSDP2 are DTensors, and why
    """

    name = "fsdp2-dtensor-used-as-plain-tensor"
    title = Text(
        "Code written for plain tensors is given FSDP2's DTensor parameters",
        "为普通张量编写的代码遇到 FSDP2 的 DTensor 参数",
    )
    ends_at = (
        ("tensor/_dispatch.py", "raise RuntimeError("),
        ("tensor/_dispatch.py", "unwrap_to_op_info"),
        ("tensor/_dispatch.py", "dispatch"),
        ("tensor/_api.py", "_op_dispatcher.dispatch("),
    )
    log_words = ("mixed torch.Tensor and DTensor", "found no DeviceMesh", "'DTensor' object", "invalid python storage")
    yields_to = ("fsdp2-lora-mixed-dtensor", "fsdp2-method-outside-forward")
    signs = (
        Sign(says=Pattern(r"found no DeviceMesh from dtensor args")),
        Sign(says=Pattern(r"'DTensor' object has no attribute")),
        Sign(
            says=Pattern(r"data pointer on an invalid python storage"),
            beside=Pattern(r"(?i)dtensor|fsdp_?2|fully_shard"),
        ),
        Sign(says=_LOADS, frames=(("weight_loader", "load_weights", "weight_loaders", "load_state_dict"),)),
        Sign(says=_LOADS, outside=("clip_grad", "torch/optim/", *RECOMPUTES), certainty=Certainty.POSSIBLE),
        Sign(says=MIXED, frames=(("newtonschulz", "muon", "callback", "ema.py"),), outside=("clip_grad", *GENERATES)),
        Sign(
            says=MIXED,
            outside=("clip_grad", "torch/optim/", "foreach_reduce", "peft/", *GENERATES, *RECOMPUTES),
            unless=Pattern(r"(?:_foreach_\w+|chunk_cat)[.\w]*:? got mixed"),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "Code that knows plain tensors only was given a DTensor of FSDP2 (or of tensor parallelism).",
        "只认识普通张量的代码得到了 FSDP2（或张量并行）的 DTensor。",
    )
    cures = (
        Text(
            "Give it the local shard (p.to_local()) or the whole (p.full_tensor(), on all ranks)",
            "给它本地分片（p.to_local()）或完整张量（p.full_tensor()，所有 rank 一起调用）",
        ),
        Text(
            "Use an optimizer made for DTensors (torch.optim, torch.optim.Muon of a recent torch), or FSDP1",
            "使用支持 DTensor 的优化器（torch.optim、较新 torch 的 torch.optim.Muon），或使用 FSDP1",
        ),
    )
    confirm = Text("type(p) of the tensor that is named is DTensor", "所指张量的 type(p) 是 DTensor")
