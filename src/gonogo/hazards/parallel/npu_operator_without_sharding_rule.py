from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class NpuOperatorWithoutShardingRule(LoggedHazard):
    """torch_npu's fused operators (attention, rotary embedding, RMSNorm) are given DTensors.
    ## What happens
    `NotImplementedError: Operator npu.npu_fusion_attention.default does not have a sharding strategy registered`
    under FSDP2 with tensor or context parallelism on Ascend; or `npu.npu_fusion_attention.default: got mixed
    torch.Tensor and DTensor`.
    ## Why
    DTensor's rules are for ATen's operators. A framework puts torch_npu's in their place on an NPU, and newer
    torch_npu brings rules for some of them only.
    ## Example
    ```python
    # wrong: q, k, v are DTensors
    out = torch_npu.npu_fusion_attention(q, k, v, heads, "BNSD")
    # right: on the local heads
    out = torch_npu.npu_fusion_attention(q.to_local(), k.to_local(), v.to_local(), local_heads, "BNSD")
    ```
    ## Cure
    Upgrade torch_npu (its newer releases register rules for fused attention), or use attn_implementation: sdpa or
    eager. Or context_parallel_size: 1 and tensor_parallel_size: 1. In code of your own: call it on x.to_local(), or
    register_sharding.
    ## When it is safe
    Without tensor or context parallelism, or with attn_implementation="sdpa" where its rule is there.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/167977: a rule for a custom operator, and its limits
    - https://github.com/pytorch/pytorch/pull/131108: register_sharding
    - https://github.com/pytorch/torchtitan/issues/3645: the same for another library's operator
    - https://github.com/pytorch/torchtitan/issues/875: context parallelism; a maintainer: register a sharding
    """

    name = "npu-operator-without-sharding-rule"
    title = Text("An NPU operator has no DTensor sharding rule", "某个 NPU 算子没有 DTensor 切分规则")
    log_words = ("sharding strategy registered", "does not have a sharding", "got mixed torch.Tensor")
    ends_at = (("tensor/_sharding_prop.py", "propagate_op_sharding_non_cached"),)
    signs = (
        Sign(
            says=Pattern(r"Operator (?:npu|custom|_npu)[\w.:]* does not have a (?:DTensor )?sharding"),
            certainty=Certainty.CERTAIN,
        ),
        Sign(says=Pattern(r"does not have a (?:DTensor )?sharding (?:strategy|rule)"), frames=(("torch_npu/",),)),
        Sign(
            says=Pattern(r"npu\.[\w.]*: got mixed torch\.Tensor and DTensor"),
            cause=Text(
                "An operator of torch_npu was given DTensors beside plain tensors, and DTensor has no rule for it.",
                "torch_npu 的算子同时得到 DTensor 与普通张量，而 DTensor 没有它的规则。",
            ),
        ),
    )
    cause = Text(
        "An operator of torch_npu was given a DTensor, and DTensor has no rule for it.",
        "torch_npu 的算子得到 DTensor，而 DTensor 没有它的规则。",
    )
    cures = (
        Text(
            "Upgrade torch_npu (its newer releases register rules for fused attention), or use "
            "attn_implementation: sdpa or eager",
            "升级 torch_npu（较新版本为融合注意力注册了规则），或使用 attn_implementation: sdpa 或 eager",
        ),
        Text(
            "Or context_parallel_size: 1 and tensor_parallel_size: 1",
            "或设 context_parallel_size: 1、tensor_parallel_size: 1",
        ),
        Text(
            "In code of your own: call it on x.to_local(), or register_sharding",
            "自己的代码：在 x.to_local() 上调用，或使用 register_sharding",
        ),
    )
    confirm = Text("The operator's name begins with npu", "算子名以 npu 开头")
