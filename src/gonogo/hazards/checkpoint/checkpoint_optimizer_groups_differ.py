from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class CheckpointOptimizerGroupsDiffer(LoggedHazard):
    """A checkpoint's optimizer stepped another set of parameters than the model that is trained now.
    ## What happens
    "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group", or
    "loaded state dict has a different number of parameter groups", in `optimizer.load_state_dict`, when a run is
    resumed.
    ## Why
    The states are kept by position, group by group. Another LoRA rank is no matter, other target modules,
    `modules_to_save`, frozen or unfrozen parts (an embedding, a vision tower), an adapter that was loaded with
    `is_trainable=False`, other rules of weight decay or a release of the trainer that sorts them otherwise are.
    ## Example
    ```python
    model = PeftModel.from_pretrained(base, checkpoint)                        # wrong: nothing of it is trainable
    model = PeftModel.from_pretrained(base, checkpoint, is_trainable=True)     # right, then resume
    ```
    ## Cure
    Set up the model as the run did that saved: the same target modules, `modules_to_save`, frozen parts and packages.
    Where the change is wanted, load the weights alone and begin with a new optimizer (no `resume_from_checkpoint`;
    delete optimizer.pt and scheduler.pt from a copy of the checkpoint).
    ## When it is safe
    Where both runs print the same number of trainable parameters, from the same configuration and releases.
    ## Sources
    - https://github.com/unslothai/unsloth/issues/3108: modules_to_save were not trainable after loading
    - https://github.com/huggingface/peft/issues/859: an adapter that is resumed
    - https://github.com/unslothai/unsloth/issues/233: another release made other parameters trainable
    - https://github.com/modelscope/ms-swift/issues/107: resume_from_checkpoint with ms-swift
    """

    name = "checkpoint-optimizer-groups-differ"
    title = Text("The optimizer to be resumed stepped other parameters", "要恢复的优化器训练的是另一组参数")
    log_words = ("loaded state dict",)
    signs = (
        Sign(
            Pattern(
                r"loaded state dict contains a parameter group that doesn't match the size of optimizer's "
                r"group|loaded state dict has a different number of parameter groups"
            ),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "The optimizer in the checkpoint stepped other parameters than those that are trainable now: other target "
        "modules, frozen parts, or releases.",
        "检查点中的优化器训练的参数与现在可训练的参数不同：target modules、冻结部分或版本不同。",
    )
    cures = (
        Text(
            "Make the same parameters trainable as in the run that saved (target modules, modules_to_save, frozen "
            "parts, is_trainable=True), with the same releases",
            "使可训练参数与保存时一致（target modules、modules_to_save、冻结部分、is_trainable=True），并使用相同版本",
        ),
        Text(
            "Where they are to differ: load the weights alone, and begin with a new optimizer (without "
            "resume_from_checkpoint)",
            "若要改变：只加载权重，使用新的优化器（不用 resume_from_checkpoint）",
        ),
    )
