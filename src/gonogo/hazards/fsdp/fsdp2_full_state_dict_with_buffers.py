from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class Fsdp2FullStateDictWithBuffers(LoggedHazard):
    """accelerate's RAM-efficient loading for FSDP2 takes every entry of the state dict for a DTensor.
    ## What happens
    `AttributeError: 'Tensor' object has no attribute 'device_mesh'` in `fsdp2_load_full_state_dict`, while the
    model is prepared.
    ## Why
    Rank 0 sends the weights to the others entry by entry. Parameters are DTensors by then; persistent buffers
    (`e_score_correction_bias` of an MoE router, running statistics) are plain tensors, which have no mesh.
    accelerate before 1.13 did not tell them apart.
    ## Example
    ```yaml
    fsdp_config:
      fsdp_version: 2
      fsdp_cpu_ram_efficient_loading: true    # wrong for a model with persistent buffers
      # right, until accelerate is upgraded
      # fsdp_cpu_ram_efficient_loading: false
    ```
    ## Cure
    Switch fsdp_cpu_ram_efficient_loading off. Or install an accelerate that tells buffers from parameters (pull
    3921 or later work).
    ## When it is safe
    For models without persistent buffers.
    ## Sources
    - https://github.com/huggingface/accelerate/issues/3898: the message, with DeepSeek V3.1
    - https://github.com/huggingface/accelerate/pull/3921: a fix, and the cause
    - https://github.com/axolotl-ai-cloud/axolotl/issues/3446: the same buffer, met earlier in loading
    """

    name = "fsdp2-full-state-dict-with-buffers"
    title = Text(
        "FSDP2's full state dict holds buffers, which are no DTensors",
        "FSDP2 的完整 state dict 中含有 buffer，而它们不是 DTensor",
    )
    log_words = ("has no attribute 'device_mesh'", "has no attribute 'placements'")
    ends_at = (("accelerate/utils/fsdp_utils.py", "sharded_param.device_mesh"),)
    signs = (
        Sign(
            says=Pattern(r"'(?:Tensor|Parameter)' object has no attribute '(?:device_mesh|placements)'"),
            frames=(("fsdp2_load_full_state_dict", "fsdp_utils.py", "monkeypatch/accelerate/fsdp2"),),
            outside=("merge",),
            certainty=Certainty.CERTAIN,
        ),
        Sign(says=Pattern(r"'(?:Tensor|Parameter)' object has no attribute 'device_mesh'"), outside=("merge",)),
    )
    cause = Text(
        "The loader of FSDP2's full state dict took a buffer, a plain tensor, for a DTensor.",
        "FSDP2 完整 state dict 的加载器把一个 buffer（普通张量）当成了 DTensor。",
    )
    cures = (
        Text("Switch fsdp_cpu_ram_efficient_loading off", "关闭 fsdp_cpu_ram_efficient_loading"),
        Text(
            "Or install an accelerate that tells buffers from parameters (pull 3921 or later work)",
            "或安装能区分 buffer 与参数的 accelerate（pull 3921 或之后）",
        ),
    )
    confirm = Text(
        "The entry that is named is a buffer: dict(model.named_buffers()) has it",
        "所指的项是 buffer：dict(model.named_buffers()) 中有它",
    )
