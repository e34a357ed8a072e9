from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class EngineRepacksWeightsAfterLoading(LoggedHazard):
    """An engine that quantizes, transposes or fuses weights once loaded is given new ones while it runs.
    ## What happens
    "AttributeError: 'Parameter' object has no attribute 'weight_loader'", a shape or `data_ptr` assertion in
    `weight_loader` or `copy_`, or KeyErrors of scales, while weights are synchronised into an FP8, AWQ, MXFP4 or
    fused-MoE model; sometimes only garbage as output.
    ## Why
    vLLM's `process_weights_after_loading` replaces parameters by packed, transposed or quantized ones, and drops their
    loaders. A later `load_weights` of the trainer's 16-bit tensors has nowhere to go.
    ## Example
    ```python
    LLM(model, quantization="fp8")   # wrong, where the trainer sends new weights by load_weights
    LLM(model, dtype="bfloat16")     # right
    ```
    ## Cure
    Roll out in 16 bit, or with a release whose engine reloads by layers (vLLM's reload API, verl's FP8 patches); for
    MoE set the backend that keeps the layout (`VLLM_FUSED_MOE_UNQUANTIZED_BACKEND`, `moe_backend=triton`).
    ## When it is safe
    With unquantized dense models.
    ## Sources
    - https://github.com/vllm-project/vllm/issues/28425: FP8: the loaders are dropped after loading
    - https://github.com/vllm-project/vllm/issues/17915: Llama 4 MoE: no weight_loader at the second load
    - https://github.com/vllm-project/vllm/issues/54477: what is repacked for which model
    """

    name = "engine-repacks-weights-after-loading"
    title = Text(
        "The engine transforms its weights after loading and cannot take new ones",
        "引擎加载后会变换权重，无法再接收新权重",
    )

    log_words = ("weight_loader", "process_weights_after_loading")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"has no attribute '(?:weight_loader|load_column_parallel_weight|load_row_parallel_weight|output_dim"
                r"|input_dim)'"
            )
        ),
        Sign(
            types=("AssertionError", "RuntimeError", "ValueError"),
            frames=(
                ("weight_loader", "load_weights", "default_weight_loader"),
                (
                    "update_weight",
                    "sync_weight",
                    "collective_rpc",
                    "sharding_manager",
                    "update_named_param",
                    "_move_model_to_vllm",
                    "refit",
                ),
            ),
            says=Pattern(r"AssertionError|size|shape|[Aa]ttempted to load weight|dtype|must match"),
        ),
        Sign(
            types=("KeyError",),
            says=Pattern(r"(?:scale|w13_|w2_|qweight|qzeros|packed|_inv)"),
            frames=(
                ("load_weights",),
                ("update_weight", "sync_weight", "sharding_manager", "refit", "update_named_param"),
            ),
        ),
        Sign(
            types=("",),
            frames=(("weight_loader",), ("update_weight", "sync_weight", "sharding_manager", "refit")),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "The engine's parameters are no longer those that were loaded: it quantized, transposed or fused "
        "them, and the trainer's new weights do not fit.",
        "引擎的参数已不是加载时的样子：它对其进行了量化、转置或融合，训练器的新权重放不进去。",
    )
    cures = (
        Text(
            "Roll out in bf16, or use a release of engine and trainer that reloads quantized or fused weights",
            "rollout 使用 bf16，或使用支持重新加载量化、融合权重的引擎与训练器版本",
        ),
    )
    confirm = (
        Text(
            "The engine runs with quantization, or the model has fused experts; in bf16 with a dense model "
            "the sync works",
            "引擎使用了量化，或模型含融合专家；bf16 稠密模型同步正常",
        ),
    )
