from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_SAID = Pattern(r"`[\w.]*(?:bias|buffer|mean|var|freq|scale|correction)[\w.]*` is not an nn\.Parameter")


class FsdpRamEfficientBufferTakenForParameter(LoggedHazard):
    """On ranks other than 0 a loader takes a buffer of the checkpoint for a parameter.
    ## What happens
    `AttributeError: `e_score_correction_bias` is not an nn.Parameter` below `from_pretrained`, on all ranks but the
    first, with `fsdp_cpu_ram_efficient_loading`.
    ## Why
    Only rank 0 reads the weights; the others make empty ones by name, through `get_parameter`. A persistent buffer
    (the correction bias of a router) is in the checkpoint as well, and `get_parameter` refuses it.
    ## Example
    ```yaml
    fsdp_config:
      fsdp_cpu_ram_efficient_loading: true    # wrong for an MoE with such a buffer
      # right, until transformers is upgraded
      # fsdp_cpu_ram_efficient_loading: false
    ```
    ## Cure
    Switch fsdp_cpu_ram_efficient_loading off (FSDP_CPU_RAM_EFFICIENT_LOADING=0). Or upgrade transformers and
    accelerate together.
    ## When it is safe
    For models without persistent buffers.
    ## Sources
    - https://github.com/axolotl-ai-cloud/axolotl/issues/3446: the message, on rank 1
    - https://github.com/axolotl-ai-cloud/axolotl/issues/3476: its cause
    - https://github.com/huggingface/accelerate/issues/3898: the same buffer in accelerate's loader
    - https://github.com/huggingface/transformers/issues/43749: RAM-efficient loading in transformers 5
    """

    name = "fsdp-ram-efficient-buffer-taken-for-parameter"
    title = Text(
        "FSDP's RAM-efficient loading asks for a parameter by the name of a buffer",
        "FSDP 的 RAM-efficient 加载用 buffer 的名字去取参数",
    )
    log_words = ("is not an nn.Parameter",)
    ends_at = (("torch/nn/modules/module.py", "is not an nn.Parameter"),)
    signs = (
        Sign(says=_SAID, types=("AttributeError",), beside=Pattern(r"(?i)fsdp|ram_efficient")),
        Sign(
            says=_SAID,
            types=("AttributeError",),
            frames=(("from_pretrained", "modeling_utils"),),
            certainty=Certainty.POSSIBLE,
        ),
        Sign(says=_SAID, certainty=Certainty.POSSIBLE),
    )
    cause = Text(
        "A loader asked the model for a parameter, and the name is a buffer's: FSDP's RAM-efficient loading "
        "does so on the ranks that read no weights.",
        "加载器向模型索取参数，而该名字属于 buffer：FSDP 的 RAM-efficient 加载在不读权重的 rank 上会这样做。",
    )
    cures = (
        Text(
            "Switch fsdp_cpu_ram_efficient_loading off (FSDP_CPU_RAM_EFFICIENT_LOADING=0)",
            "关闭 fsdp_cpu_ram_efficient_loading（FSDP_CPU_RAM_EFFICIENT_LOADING=0）",
        ),
        Text("Or upgrade transformers and accelerate together", "或一起升级 transformers 与 accelerate"),
    )
    confirm = Text(
        "Rank 0 loads, the others fail; the name is in model.named_buffers()",
        "rank 0 正常而其他 rank 失败；该名字在 model.named_buffers() 中",
    )
