from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class FsdpFullStateDictFillsGpu(LoggedHazard):
    """The whole model is gathered on every GPU when FSDP saves it, and does not fit.
    ## What happens
    Training goes well; at the checkpoint, or after the last step, "UserWarning: Failed to clone() tensor with name ...
    on rank 0. This may mean that this state_dict entry could point to invalid memory regions ... Error: CUDA out of
    memory". The file that is written may be broken. Or a plain OutOfMemoryError below `state_dict`.
    ## Why
    `model.state_dict()` of an FSDP model gives the full, unsharded state by default, and keeps it on the GPU, beside
    the shards, gradients and optimizer states: 2 or 4 bytes a parameter more.
    ## Example
    ```python
    state = model.state_dict()                                                        # wrong for a large model
    save = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, save):
        state = model.state_dict()                                                    # right: goes to the host
    ```
    ## Cure
    `FullStateDictConfig(offload_to_cpu=True, rank0_only=True)`, or a sharded checkpoint (accelerate:
    `fsdp_state_dict_type: SHARDED_STATE_DICT`, then `accelerate merge-weights`). Check that the file that was written
    holds all weights.
    ## When it is safe
    Where a GPU has room for the whole model beside its shards.
    ## Sources
    - https://github.com/tatsu-lab/stanford_alpaca/issues/65: after the last step, on 40 GB; the state to the host
    - https://github.com/huggingface/transformers/issues/25100: the same warning at a checkpoint
    - https://github.com/lm-sys/FastChat/issues/693: 13B on 8 x 40 GB, in the last step's save
    """

    name = "fsdp-full-state-dict-fills-gpu"
    title = Text("FSDP gathers the whole model on the GPU to save it", "FSDP 保存时在 GPU 上汇集整个模型")
    log_words = ("Failed to clone() tensor",)
    ends_at = (("fsdp/_state_dict_utils.py", "clone("), ("fully_sharded_data_parallel.py", "state_dict"))
    traces = ("could point to invalid memory regions",)
    signs = (
        Sign(Pattern(r"Failed to clone\(\) tensor with name.{0,600}out of memory"), Certainty.CERTAIN),
        Sign(
            Pattern(r"(?i)out of memory"),
            Certainty.LIKELY,
            types=("OutOfMemoryError", "RuntimeError"),
            lines=False,
            frames=(
                ("fsdp/_state_dict_utils.py", "fsdp/fully_sharded_data_parallel.py", "fsdp/_unshard_param_utils.py"),
                ("state_dict", "save_model", "save_fsdp_model"),
            ),
            outside=("training_step", "backward"),
        ),
    )
    cause = Text(
        "To save it, FSDP put the whole, unsharded state of the model together on the GPU, and it did not fit.",
        "保存时 FSDP 把未切分的完整模型状态汇集到 GPU 上，放不下。",
    )
    cures = (
        Text(
            "Gather it on the host of rank 0: FullStateDictConfig(offload_to_cpu=True, rank0_only=True) with "
            "FSDP.state_dict_type; check that what was written is whole",
            "汇集到 rank 0 的内存：FSDP.state_dict_type 配合 FullStateDictConfig(offload_to_cpu=True, "
            "rank0_only=True)；并检"
            "查已写出的文件是否完整",
        ),
        Text(
            "Or save shards: fsdp_state_dict_type: SHARDED_STATE_DICT (accelerate), and merge them afterwards",
            "或保存分片：fsdp_state_dict_type: SHARDED_STATE_DICT（accelerate），之后再合并",
        ),
    )
    confirm = Text("It fails while saving, not in a training step", "它在保存时失败，而不是在训练步骤中")
