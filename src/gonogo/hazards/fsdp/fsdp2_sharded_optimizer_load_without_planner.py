from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class Fsdp2ShardedOptimizerLoadWithoutPlanner(LoggedHazard):
    """A run with fsdp_version: 2 and SHARDED_STATE_DICT cannot resume: the optimizer's keys are not found.
    ## What happens
    `RuntimeError: Missing key in checkpoint state_dict: optimizer.state.0.step.` in `load_fsdp_optimizer`; saving
    had gone through.
    ## Why
    The checkpoint was written with flattened keys (`DefaultSavePlanner`), and accelerate (up to 1.13) reads it with
    `dist_cp.load` as it is, under names that the new optimizer, whose state is still empty or numbered otherwise,
    does not share.
    ## Example
    ```yaml
    fsdp_config:
      fsdp_version: 2
      fsdp_state_dict_type: SHARDED_STATE_DICT    # wrong where the run is to be resumed
      # right
      # fsdp_state_dict_type: FULL_STATE_DICT
    ```
    ## Cure
    Upgrade accelerate to one with the planner (pull 3972). Or save with fsdp_state_dict_type: FULL_STATE_DICT; from
    this checkpoint resume the model alone. With a loop of one's own: set_optimizer_state_dict of
    torch.distributed.checkpoint.state_dict.
    ## When it is safe
    With FULL_STATE_DICT, or where only the model is read back.
    ## Sources
    - https://github.com/huggingface/accelerate/issues/3971: the message and the cause
    - https://github.com/huggingface/accelerate/pull/3972: a planner for the load
    - https://github.com/pytorch/pytorch/issues/124546: names of optimizer states and distributed checkpoints
    """

    name = "fsdp2-sharded-optimizer-load-without-planner"
    title = Text(
        "FSDP2's sharded optimizer state is read back without the planner that its keys need",
        "读取 FSDP2 的分片优化器状态时缺少其键所需的 planner",
    )
    log_words = ("Missing key in checkpoint state_dict", "load_fsdp_optimizer")
    signs = (
        Sign(
            says=Pattern(r"Missing key in checkpoint state_dict: optimizer\.(?:state|param_groups)"),
            frames=(("load_fsdp_optimizer",),),
            certainty=Certainty.CERTAIN,
        ),
        Sign(says=Pattern(r"Missing key in checkpoint state_dict: optim\w*\.(?:state|param_groups)")),
        Sign(cut=(("fsdp_utils.py", "load_fsdp_optimizer"),), within=2, certainty=Certainty.POSSIBLE),
    )
    cause = Text(
        "The sharded optimizer state of FSDP2 was saved under other keys than those under which it is looked for.",
        "FSDP2 的分片优化器状态保存时的键与读取时查找的键不同。",
    )
    cures = (
        Text("Upgrade accelerate to one with the planner (pull 3972)", "升级到带 planner 的 accelerate（pull 3972）"),
        Text(
            "Or save with fsdp_state_dict_type: FULL_STATE_DICT; from this checkpoint resume the model alone",
            "或以 fsdp_state_dict_type: FULL_STATE_DICT 保存；这份 checkpoint 只恢复模型",
        ),
        Text(
            "With a loop of one's own: set_optimizer_state_dict of torch.distributed.checkpoint.state_dict",
            "自写循环：使用 torch.distributed.checkpoint.state_dict 的 set_optimizer_state_dict",
        ),
    )
    confirm = Text(
        "The traceback passes load_fsdp_optimizer, and the folder has an optimizer_0 with .distcp files",
        "traceback 经过 load_fsdp_optimizer，且目录下有含 .distcp 文件的 optimizer_0",
    )
