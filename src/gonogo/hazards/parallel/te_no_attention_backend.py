from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class TeNoAttentionBackend(LoggedHazard):
    """GPU, cuDNN, flash-attn's version, layout and head size leave no backend that may be used.
    ## What happens
    `ValueError: No dot product attention backend is available for the provided inputs. Please run with NVTE_DEBUG=1
    NVTE_DEBUG_LEVEL=2`; in older releases `No dot product attention support for the provided inputs!`.
    ## Why
    Transformer Engine takes flash-attn only within a range of versions (a newer one counts as not installed), fused
    attention only where this cuDNN supports the architecture and the layout (thd, packed), and its own unfused one
    not for packed batches.
    ## Example
    ```sh
    pip install flash-attn==2.8.0                       # wrong beside a Transformer Engine that takes up to 2.7.4
    pip install flash-attn==2.7.4.post1                 # right
    ```
    ## Cure
    Run once with NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2: it says why each was ruled out. Install a flash-attn that it
    accepts, or a newer cuDNN; unset NVTE_FLASH_ATTN=0, NVTE_FUSED_ATTN=0 and attention_backend where they rule one
    out. Or train without packing (padding_free: false).
    ## When it is safe
    Where the debug output names a selected backend.
    ## Sources
    - https://github.com/NVIDIA/TransformerEngine/issues/1821: B200, cuDNN 9.7.1, flash-attn 2.8
    - https://github.com/NVIDIA/Megatron-LM/issues/1882: cuDNN's fused attention refused
    - https://github.com/modelscope/ms-swift/issues/5737: packing with attention_backend flash
    """

    name = "te-no-attention-backend"
    title = Text(
        "Transformer Engine has no attention backend for these inputs",
        "Transformer Engine 没有适合这些输入的注意力后端",
    )
    log_words = ("No dot product attention", "DotProductAttention")
    signs = (
        Sign(
            says=Pattern(r"No dot[- ]product attention (?:backend is available|support) for the provided inputs"),
            certainty=Certainty.CERTAIN,
        ),
        Sign(cut=(("dot_product_attention.py", "raise ValueError("),), within=1),
    )
    cause = Text(
        "Transformer Engine ruled out all of its attention backends for this GPU, dtype, layout and these libraries.",
        "对于这个 GPU、dtype、布局和库，Transformer Engine 排除了全部注意力后端。",
    )
    cures = (
        Text(
            "Run once with NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2: it says why each was ruled out",
            "以 NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 运行一次：会说明各后端被排除的原因",
        ),
        Text(
            "Install a flash-attn that it accepts, or a newer cuDNN; unset NVTE_FLASH_ATTN=0, "
            "NVTE_FUSED_ATTN=0 and attention_backend where they rule one out",
            "安装它接受的 flash-attn，或更新的 cuDNN；若 NVTE_FLASH_ATTN=0、NVTE_FUSED_ATTN=0 或 "
            "attention_backend 排除了某个后端，请取消",
        ),
        Text("Or train without packing (padding_free: false)", "或不使用打包（padding_free: false）"),
    )
    confirm = Text("The debug lines show which condition failed", "调试行显示哪个条件不满足")
