from gonogo.hazards.parallel._sizes import is_megatron, number_of, size_of
from gonogo.hazards.rule import Certainty, Field, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class MegatronHeadsNotDivisibleByTp(LoggedHazard):
    """Each tensor-parallel rank takes whole heads, and whole key-value groups.
    ## What happens
    `ValueError: num_query_groups (2) must be a multiple of tensor_model_parallel_size (8)`, `num_attention_heads
    (28) must be a multiple of tensor_model_parallel_size (8)`, or `AssertionError: 28 is not divisible by 8` in
    `megatron/core/utils.py`, while the model is built.
    ## Why
    The projections are split by heads. With grouped queries there are few key-value heads (2 or 4 in recent MoE
    models), and before core 0.16 each rank had to have at least one of its own.
    ## Example
    ```sh
    --tensor-model-parallel-size 8 --num-attention-heads 28 --group-query-attention --num-query-groups 4    # wrong
    --tensor-model-parallel-size 4 --num-attention-heads 28 --group-query-attention --num-query-groups 4    # right
    ```
    ## Cure
    Choose a tensor-parallel size that divides num_attention_heads and num_key_value_heads; take pipeline, expert or
    context parallelism for the rest. For query groups alone: megatron-core 0.16 and newer copy them.
    ## When it is safe
    Where the tensor-parallel size divides both numbers.
    ## Sources
    - https://github.com/modelscope/ms-swift/issues/8219: Qwen3.5: 2 query groups, TP 8
    - https://github.com/hpcaitech/ColossalAI/issues/3043: the same rule elsewhere
    - https://github.com/vllm-project/vllm/issues/52435: why heads have to divide
    """

    name = "megatron-heads-not-divisible-by-tp"
    title = Text(
        "The model's attention heads or query groups do not divide by Megatron's tensor-parallel size",
        "模型的注意力头数或 query group 数不能被 Megatron 的张量并行度整除",
    )
    log_words = ("num_query_groups", "num_attention_heads", "is not divisible by")
    ends_at = (("transformer/transformer_config.py", "raise ValueError("),)
    signs = (
        Sign(
            says=Pattern(
                r"(?:num_query_groups|num_attention_heads|num_key_value_heads).{0,20}\(?\d*\)? ?(?:must|should) be "
                r"(?:a multiple of|divisible by) ?tensor_"
            ),
            certainty=Certainty.CERTAIN,
        ),
        Sign(
            says=Pattern(r"^\d+ is not divisible by \d+"),
            types=("AssertionError",),
            frames=(("megatron/core/transformer", "megatron/core/tensor_parallel"),),
            lines=False,
        ),
        Sign(cut=(("megatron/core/utils.py", "ensure_divisibility"),), within=1, certainty=Certainty.POSSIBLE),
    )
    cause = Text(
        "The tensor-parallel size does not divide the model's attention heads or its query groups.",
        "张量并行度不能整除模型的注意力头数或 query group 数。",
    )
    cures = (
        Text(
            "Choose a tensor-parallel size that divides num_attention_heads and num_key_value_heads; take "
            "pipeline, expert or context parallelism for the rest",
            "选择能整除 num_attention_heads 与 num_key_value_heads 的张量并行度，其余用流水、专家或上下文并行",
        ),
        Text(
            "For query groups alone: megatron-core 0.16 and newer copy them",
            "仅 query group 不整除时：megatron-core 0.16 及更新会复制它们",
        ),
    )
    confirm = Text(
        "num_key_value_heads in the model's config.json, and the tensor-parallel size",
        "模型 config.json 中的 num_key_value_heads 与张量并行度",
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Megatron-LM's numbers, or those of the model that is loaded."""
        tensor = size_of(launch, "tensor_model_parallel_size")
        size = number_of(tensor)
        if not is_megatron(launch) or size is None or size < 2:
            return
        config = run.model.config if run.model is not None and run.model.config is not None else {}
        for option, key in (
            ("num_attention_heads", "num_attention_heads"),
            ("num_query_groups", "num_key_value_heads"),
        ):
            given = size_of(launch, option)
            heads = number_of(given, None) or number_of(Field.of(config.get(key), None), None)
            if heads is None or not heads % size:
                continue
            yield self.finding(
                Text(
                    "{heads} ({key}) does not divide by the tensor-parallel size {size}.",
                    "{heads}（{key}）不能被张量并行度 {size} 整除。",
                ).format(heads=heads, key=key, size=size),
                certainty=Certainty.LIKELY,
                cure=self.cures,
                spans=(tensor.span(), given.span() if given.known else None),
            )
            return
