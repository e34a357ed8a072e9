from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RolloutKvCacheTooSmall(LoggedHazard):
    """The engine's share of the GPU leaves too little for the KV cache after its weights.
    ## What happens
    "The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache
    (18240)", "To serve at least one request with the models's max seq len …, … GiB KV cache is needed", "No available
    memory for the cache blocks"; SGLang: "Not enough memory. Please try to increase --mem-fraction-static".
    ## Why
    fraction × card − weights − activations of a profile run is what the cache gets. A small fraction beside a trainer,
    or the context length of the model's config (131072) where `max_model_len` is not given, leaves less than one
    sequence needs.
    ## Example
    ```python
    GRPOConfig(vllm_mode="colocate", vllm_gpu_memory_utilization=0.2)                              # wrong for 131072
    GRPOConfig(vllm_mode="colocate", vllm_gpu_memory_utilization=0.3, vllm_max_model_length=4096)  # right
    ```
    ## Cure
    Give `max_model_len` (prompt + completion is enough), raise `gpu_memory_utilization` as far as the trainer lets it,
    raise the tensor-parallel size, or share less.
    ## When it is safe
    Where fraction × card is more than the weights and the cache of one sequence.
    ## Sources
    - https://github.com/vllm-project/vllm/issues/2248: No available memory for the cache blocks, and what decides it
    - https://github.com/pat-jj/s3/issues/10: beside an FSDP trainer on 24 GB cards
    - https://docs.vllm.ai/en/latest/configuration/conserving_memory.html: max_model_len and the fraction
    """

    name = "rollout-kv-cache-too-small"
    title = Text(
        "The engine's KV cache does not hold one sequence of max_model_len",
        "引擎的 KV cache 容不下一条 max_model_len 长度的序列",
    )

    ends_at = (("vllm/", "raise_if_cache_size_invalid"), ("kv_cache_utils.py", "raise ValueError("))
    log_words = ("stored in KV cache", "No available memory for the cache", "KV cache is needed", "mem-fraction-static")
    anywhere = True
    signs = (
        Sign(
            Pattern(r"max seq len \(?\d+\)? is larger than the maximum number of tokens that can be stored in KV cache")
        ),
        Sign(
            Pattern(
                r"To serve at least one request with the models?'?s?'?s max seq len"
                r"|KV cache is needed, which is larger than the available"
            )
        ),
        Sign(
            Pattern(
                r"No available memory for the cache blocks"
                r"|Not enough memory\. Please try to increase --mem-fraction-static"
            )
        ),
    )
    cause = Text(
        "After weights and activations, the engine's share of the card (gpu_memory_utilization, "
        "mem_fraction_static) leaves less KV cache than a sequence of max_model_len needs.",
        "扣除权重与激活后，引擎分得的显存（gpu_memory_utilization、mem_fraction_static）不足以放下一"
        "条 max_model_len 长度序列的 KV cache。",
    )
    cures = (
        Text(
            "Give max_model_len: prompt + completion length is enough (vllm_max_model_length, "
            "--vllm_max_model_len, rollout.max_model_len)",
            "给出 max_model_len：提示与生成长度之和即可（vllm_max_model_length、--vllm_max_model_len、"
            "rollout.max_model_len）",
        ),
        Text(
            "Raise the fraction as far as the trainer beside it allows, or the engine's tensor-parallel size",
            "在同卡训练器允许的范围内调高比例，或增大引擎的张量并行",
        ),
    )
    confirm = (
        Text(
            "The engine's log of free memory and of KV cache blocks says how much it had",
            "引擎日志中的空闲显存与 KV cache 块数说明它有多少",
        ),
    )
