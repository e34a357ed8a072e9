from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class FsdpMergeAssumesDtensors(LoggedHazard):
    """A merger of FSDP shards meets plain tensors: a run on one GPU, or buffers.
    ## What happens
    `assert isinstance(weight, torch.distributed._tensor.DTensor)` (AssertionError) or `'Tensor' object has no
    attribute 'device_mesh'` in `model_merger.py`, after a training that ended well.
    ## Why
    With one rank (or NO_SHARD, or FSDP1 with a full state dict) weights are saved as they are; buffers always are.
    The script reads mesh and placements from the first entry.
    ## Example
    ```python
    # wrong
    assert isinstance(weight, DTensor)
    # right
    whole = torch.cat([w.to_local() for w in weights]) if isinstance(weight, DTensor) else weight
    ```
    ## Cure
    Upgrade the framework's merger (verl: python -m verl.model_merger merge --backend fsdp). Or, for one rank, load
    model_world_size_1_rank_0.pt with torch.load and save it by model.save_pretrained(state_dict=...).
    ## When it is safe
    For checkpoints of several ranks without persistent buffers.
    ## Sources
    - https://github.com/verl-project/verl/issues/903: the assertion, after a run on one GPU
    - https://github.com/zz1358m/SofT-GRPO-master/issues/2: which merger goes with such files
    - https://github.com/huggingface/accelerate/issues/3898: buffers among DTensors
    """

    name = "fsdp-merge-assumes-dtensors"
    title = Text(
        "The checkpoint merger takes every entry for a DTensor's shard",
        "合并 checkpoint 的工具把每一项都当作 DTensor 分片",
    )
    log_words = ("isinstance(weight", "_tensor.DTensor)", "has no attribute 'device_mesh'")
    anywhere = True
    signs = (
        Sign(says=Pattern(r"assert isinstance\(\w+, (?:torch\.distributed\.\w+\.)?DTensor\)")),
        Sign(types=("AssertionError",), innermost=("DTensor)",), frames=(("merge",),), lines=False),
        Sign(
            says=Pattern(r"'(?:Tensor|Parameter)' object has no attribute '(?:device_mesh|placements|_local_tensor)'"),
            frames=(("merge",),),
        ),
    )
    cause = Text(
        "The merging script expects DTensors, and this checkpoint holds plain tensors (of a run on one GPU, "
        "or buffers).",
        "合并脚本期望 DTensor，而这份 checkpoint 含有普通张量（来自单卡训练，或是 buffer）。",
    )
    cures = (
        Text(
            "Upgrade the framework's merger (verl: python -m verl.model_merger merge --backend fsdp)",
            "升级框架的合并工具（verl：python -m verl.model_merger merge --backend fsdp）",
        ),
        Text(
            "Or, for one rank, load model_world_size_1_rank_0.pt with torch.load and save it by "
            "model.save_pretrained(state_dict=...)",
            "或在单 rank 时，用 torch.load 读取 model_world_size_1_rank_0.pt，再以 "
            "model.save_pretrained(state_dict=...) 保存",
        ),
    )
    confirm = Text("type() of the entry that is named is torch.Tensor", "所指条目的 type() 为 torch.Tensor")
