from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class TransformersTensorParallelPlanBroken(LoggedHazard):
    """tp_plan="auto" (or an expert plan) names a style, a layer or a size that does not go with the model or the
    world.
    ## What happens
    `ValueError: Unknown parallel style: local_rowwise`, `KeyError` on a style, `Unsupported tensor parallel style
    value`, `Cannot evenly shard ... experts across ... expert-parallel ranks`, or shapes that are split in two in
    the first forward, with `tp_plan="auto"`.
    ## Why
    The plan stands in the model's config (`base_model_tp_plan`) and in `_tp_plan` of the class; styles were renamed
    and dropped between 4.50 and 5.x. A remote model, an older trainer (NeMo RL, Automodel) or heads that do not
    divide meet the other half of that change.
    ## Example
    ```python
    # wrong: 14 heads do not divide over 4 ranks
    AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", tp_plan="auto")
    # right: FSDP or ZeRO-3 for such a model, or 2 ranks
    AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
    ```
    ## Cure
    Leave tensor parallelism off (no tp_plan, tensor_parallel_size: 1) and shard by FSDP or ZeRO-3. Or use the
    transformers that the framework pins; a size that divides num_key_value_heads and the experts.
    ## When it is safe
    For models whose plan is tested in that release, with heads and experts that divide.
    ## Sources
    - https://github.com/NVIDIA-NeMo/RL/issues/2482: Unknown parallel style: local_rowwise
    - https://github.com/huggingface/transformers/issues/38419: verify_tp_plan and keys without a dot
    - https://github.com/huggingface/transformers/pull/48300: the API and styles that were brought back
    - https://github.com/NVIDIA-NeMo/Automodel/pull/2244: a model without a plan of its own
    """

    name = "transformers-tensor-parallel-plan-broken"
    title = Text("transformers' tensor-parallel plan does not fit the model", "transformers 的张量并行计划不适合该模型")
    log_words = ("parallel style", "tp_plan", "Cannot evenly shard", "expert-parallel ranks")
    signs = (
        Sign(says=Pattern(r"(?:Unknown|Unsupported) (?:tensor )?parallel style"), certainty=Certainty.LIKELY),
        Sign(says=Pattern(r"Cannot evenly shard \d+ experts across \d+ expert-parallel ranks")),
        Sign(
            says=Pattern(r"tp_plan|_get_parameter_tp_plan|verify_tp_plan"),
            types=("ValueError", "KeyError", "AttributeError", "IndexError", "TypeError"),
            lines=False,
        ),
        Sign(
            types=("KeyError", "ValueError", "AttributeError", "IndexError", "RuntimeError", "AssertionError"),
            lines=False,
            innermost=("integrations/tensor_parallel.py", "distributed/tensor_parallel.py"),
            frames=(("integrations/tensor_parallel.py", "distributed/tensor_parallel.py"),),
        ),
    )
    cause = Text(
        "The tensor-parallel plan that transformers found does not go with this model, this release or this "
        "number of ranks.",
        "transformers 找到的张量并行计划与该模型、该版本或该 rank 数不符。",
    )
    cures = (
        Text(
            "Leave tensor parallelism off (no tp_plan, tensor_parallel_size: 1) and shard by FSDP or ZeRO-3",
            "关闭张量并行（不写 tp_plan，tensor_parallel_size: 1），用 FSDP 或 ZeRO-3 切分",
        ),
        Text(
            "Or use the transformers that the framework pins; a size that divides num_key_value_heads and the experts",
            "或使用框架固定的 transformers；并行度须整除 num_key_value_heads 与专家数",
        ),
    )
    confirm = Text(
        "The error is below transformers' tensor_parallel code, and vanishes without tp_plan",
        "报错位于 transformers 的 tensor_parallel 代码之下，且去掉 tp_plan 后消失",
    )
