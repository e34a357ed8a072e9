from gonogo.evidence.patterns import Match
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_NPU_OPERATOR = Pattern(r"Operator (?:npu|custom)[\w.:]* does not have")


class DtensorOpWithoutShardingStrategy(LoggedHazard):
    """Tensor, context or expert parallelism by DTensor meets an operator that DTensor was not taught.
    ## What happens
    `NotImplementedError: Operator aten.log_sigmoid_forward.default does not have a sharding strategy registered`;
    in older releases `Operator ... does not have a sharding rule`.
    ## Why
    Each ATen operator needs a rule that says how its result is sharded. Custom operators and less common ones
    (select, masked_fill_, topk, losses on a sharded dimension) have none in this PyTorch.
    ## Example
    ```python
    # wrong: logits is a DTensor
    loss = F.logsigmoid(logits).mean()
    # right: compute on the whole, or on the local part
    loss = F.logsigmoid(logits.full_tensor()).mean()
    ```
    ## Cure
    Call it on the local or the whole tensor: x.to_local() where each row stands alone, x.full_tensor() where not.
    For an operator of your own: torch.distributed.tensor.experimental.register_sharding. Or a newer PyTorch, or a
    parallel size of 1 in the dimension that shards it (context_parallel_size, tensor_parallel_size).
    ## When it is safe
    Where the operator runs on plain tensors, inside local_map or after full_tensor().
    ## Sources
    - https://github.com/pytorch/pytorch/issues/147724: aten.select.int
    - https://github.com/NVIDIA-NeMo/RL/issues/2482: log_sigmoid under context parallelism
    - https://github.com/pytorch/pytorch/issues/152249: masked_fill_, and how to work on the local part
    - https://github.com/pytorch/torchtitan/issues/3645: a custom operator
    """

    name = "dtensor-op-without-sharding-strategy"
    title = Text("An operator has no DTensor sharding strategy", "某个算子没有 DTensor 切分策略")
    log_words = ("sharding strategy registered", "does not have a sharding", "Sharding propagation failed")
    ends_at = (
        ("tensor/_sharding_prop.py", "propagate_op_sharding_non_cached"),
        ("tensor/_sharding_prop.py", "propagate"),
    )
    signs = (
        Sign(
            says=Pattern(
                r"Operator (?P<operator>[\w.:]+) does not have a (?:DTensor )?sharding (?:strategy|rule) registered"
            ),
            unless=_NPU_OPERATOR,
        ),
        Sign(says=Pattern(r"does not have a (?:DTensor )?sharding (?:strategy|rule)"), unless=_NPU_OPERATOR),
        Sign(says=Pattern(r"Sharding propagation failed for"), unless=_NPU_OPERATOR, certainty=Certainty.POSSIBLE),
        Sign(
            says=Pattern(
                r"(?P<operator>(?:flash_attn\w*|fla|xformers\w*|transformer_engine\w*|vllm|_C|custom|triton\w*)"
                r"\.\w[\w.]*):? got mixed torch\.Tensor and DTensor"
            ),
            unless=_NPU_OPERATOR,
        ),
        Sign(cut=(("tensor/_sharding_prop.py", "propagate_op_sharding"),), within=1, certainty=Certainty.POSSIBLE),
    )
    cause = Text(
        "DTensor has no rule for {operator}: it cannot tell how the result is sharded.",
        "DTensor 没有 {operator} 的规则：无法得知其结果如何切分。",
    )
    cures = (
        Text(
            "Call it on the local or the whole tensor: x.to_local() where each row stands alone, "
            "x.full_tensor() where not",
            "在本地或完整张量上调用：各行独立时用 x.to_local()，否则用 x.full_tensor()",
        ),
        Text(
            "For an operator of your own: torch.distributed.tensor.experimental.register_sharding",
            "自己的算子：使用 torch.distributed.tensor.experimental.register_sharding",
        ),
        Text(
            "Or a newer PyTorch, or a parallel size of 1 in the dimension that shards it "
            "(context_parallel_size, tensor_parallel_size)",
            "或使用更新的 PyTorch，或把切分它的维度的并行度设为 1（context_parallel_size、tensor_parallel_size）",
        ),
    )
    confirm = Text(
        "The frame of your own that calls the operator holds a DTensor", "调用该算子的您自己的代码持有 DTensor"
    )

    def cause_told(self, match: Match | None) -> Text:
        """The cause, with the operator."""
        named = match.groupdict().get("operator") if match is not None else None
        return self.cause.format(operator=named or Text("the operator", "该算子"))
