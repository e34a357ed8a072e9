from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_NAMES = Pattern(
    r"(?:Missing|Unexpected) key\(s\) in state_dict: .{0,200}(?:linear_qkv|linear_fc[12]|linear_proj|query_key_value"
    r"|dense_h_to_4h|_extra_state|core_attention|input_norm|decoder\.layers\.)"
)


class CheckpointOfOtherFrameworkFormat(LoggedHazard):
    """Names, fusions and file formats differ between Megatron's legacy and core models, TE and local layers, Pai,
    NeMo, Bridge and swift.
    ## What happens
    `Error(s) in loading state_dict for GPTModel` (or ParallelTransformer) with `Missing key(s)` such as
    `linear_qkv.layer_norm_weight` or `input_norm.weight`, `Unexpected key(s) ... _extra_state`, or
    `CheckpointingException: Missing ... keys` when a converted checkpoint is loaded.
    ## Why
    Transformer Engine's layers hold the norm inside the linear; local ones apart. Legacy models name attention
    `query_key_value`, core ones `linear_qkv`. A converter writes for one of them, and the run builds another.
    ## Example
    ```sh
    # wrong: converted for mcore with Transformer Engine, trained with local layers
    torchrun pretrain_gpt.py --load mcore_te_ckpt --transformer-impl local
    # right
    torchrun pretrain_gpt.py --load mcore_te_ckpt --transformer-impl transformer_engine
    ```
    ## Cure
    Convert with the tool of the framework that trains, for its layer implementation: --saver mcore with
    --transformer-impl transformer_engine, or legacy with --use-legacy-models. For _extra_state alone:
    --dist-ckpt-strictness log_unexpected, or strict=False. Check num_layers, qk_layernorm, swiglu, untie-embeddings
    and the pipeline's size against the conversion.
    ## When it is safe
    Where one framework's release converts, trains and exports.
    ## Sources
    - https://github.com/NVIDIA/Megatron-LM/issues/1602: legacy names missing
    - https://github.com/NVIDIA/Megatron-LM/issues/900: _extra_state that is not expected
    - https://github.com/alibaba/Pai-Megatron-Patch/issues/547: Pai's conversion and the model that is built
    - https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/1821: Bridge's checkpoint in Megatron-LM
    """

    name = "checkpoint-of-other-framework-format"
    title = Text(
        "A checkpoint of one Megatron framework is loaded by another that lays it out differently",
        "由一个 Megatron 框架写出的 checkpoint 被另一个布局不同的框架加载",
    )
    log_words = ("in loading state_dict for", "Missing key(s)", "CheckpointingException", "_extra_state")
    signs = (
        Sign(
            says=Pattern(
                r"loading state_dict for (?:GPTModel|ParallelTransformer|TransformerLanguageModel|MambaModel|Floa"
                r"t16Module)"
            )
        ),
        Sign(says=_NAMES, frames=(("megatron", "mcore", "nemo", "mbridge"),)),
        Sign(says=_NAMES, certainty=Certainty.LIKELY),
        Sign(
            types=("CheckpointingException",),
            says=Pattern(r"(?i)(?:missing|unexpected).{0,40}keys?|does not match|shape mismatch"),
            lines=False,
        ),
    )
    cause = Text(
        "The checkpoint's names are those of another Megatron layout than the model that was built.",
        "checkpoint 中的名字属于另一种 Megatron 布局，与所构建的模型不同。",
    )
    cures = (
        Text(
            "Convert with the tool of the framework that trains, for its layer implementation: --saver mcore "
            "with --transformer-impl transformer_engine, or legacy with --use-legacy-models",
            "用训练所用框架的工具、按其层实现转换：--saver mcore 配 --transformer-impl transformer_engine，或"
            " legacy 配 --use-legacy-models",
        ),
        Text(
            "For _extra_state alone: --dist-ckpt-strictness log_unexpected, or strict=False",
            "仅 _extra_state 不符时：--dist-ckpt-strictness log_unexpected，或 strict=False",
        ),
        Text(
            "Check num_layers, qk_layernorm, swiglu, untie-embeddings and the pipeline's size against the conversion",
            "核对 num_layers、qk_layernorm、swiglu、untie-embeddings 与流水并行度是否与转换时一致",
        ),
    )
    confirm = Text(
        "The missing and the unexpected names belong to the same weights, named otherwise",
        "缺失与多余的名字对应同样的权重，只是命名不同",
    )
