from gonogo.hazards.rule import Certainty, Environment, Findings, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_OPTIMIZERS = ("adamw_torch_8bit", "adamw_torch_4bit", "ao_adamw_8bit", "ao_adamw_4bit", "ao_adamw_fp8")


class FsdpOptimizerStateOfTensorSubclass(LoggedHazard):
    """torchao's 8-bit and 4-bit optimizers keep their state in tensor subclasses, without the operators that FSDP1's
    state dict needs.
    ## What happens
    `NotImplementedError: OptimState8bit dispatch: attempting to run unimplemented operator/function` in
    `fsdp/_optim_utils.py`, when a checkpoint is written, hours into the training.
    ## Why
    FSDP1 gathers each state with `new_zeros`, `split` and collectives; `OptimState8bit` implements what an
    optimizer's step and DTensor need, and no more.
    ## Example
    ```yaml
    optimizer: ao_adamw_8bit    # wrong with FSDP1 and saved optimizer states
    # right: fsdp_version: 2, or
    # optimizer: adamw_torch_fused
    ```
    ## Cure
    Train with FSDP2 (fsdp_version: 2), or with another optimizer. Or save no optimizer state: save_only_model:
    true.
    ## When it is safe
    Under FSDP2, or where no optimizer state is saved (save_only_model).
    ## Sources
    - https://github.com/axolotl-ai-cloud/axolotl/issues/2744: the error, at the end of a training
    - https://github.com/axolotl-ai-cloud/axolotl/pull/2773: what axolotl does about it
    - https://github.com/pytorch/pytorch/issues/114299: FSDP2's state dicts are of DTensors
    """

    name = "fsdp-optimizer-state-of-tensor-subclass"
    title = Text(
        "FSDP1 cannot gather the optimizer state of a tensor-subclass optimizer", "FSDP1 无法聚合张量子类优化器的状态"
    )
    log_words = ("OptimState", "attempting to run unimplemented")
    ends_at = (("torchao/utils.py", "_dispatch__torch_dispatch__"),)
    signs = (
        Sign(
            says=Pattern(r"OptimState\w* dispatch: attempting to run unimplemented"),
            frames=(("fsdp/_optim_utils.py", "_optim_utils"),),
            certainty=Certainty.CERTAIN,
        ),
        Sign(says=Pattern(r"OptimState\w* dispatch: attempting to run unimplemented")),
        Sign(
            cut=(("fsdp/_optim_utils.py", "new_zeros"), ("torchao/", "_dispatch__torch_dispatch__")),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "FSDP1's optimizer state dict asked an operator of a quantized state tensor that it does not have.",
        "FSDP1 的优化器 state dict 需要量化状态张量所没有的算子。",
    )
    cures = (
        Text(
            "Train with FSDP2 (fsdp_version: 2), or with another optimizer",
            "使用 FSDP2（fsdp_version: 2），或换用其他优化器",
        ),
        Text("Or save no optimizer state: save_only_model: true", "或不保存优化器状态：save_only_model: true"),
    )
    confirm = Text(
        "The optimizer is torchao's (ao_adamw_8bit, adamw_torch_8bit)",
        "优化器来自 torchao（ao_adamw_8bit、adamw_torch_8bit）",
    )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """One of torchao's optimizers under accelerate's FSDP1, whose states are to be saved."""
        name = run.arguments.get("optim")
        if run.accelerate is None or run.accelerate.distributed_type.value != "FSDP":
            return
        if str(name.get("")) not in _OPTIMIZERS or run.arguments.get("save_only_model").truth:
            return
        if str(run.accelerate.get("fsdp_config", "fsdp_version").get(1)) == "2":
            return
        if str(run.arguments.get("save_strategy").get("steps")) == "no":
            return
        yield self.finding(
            Text(
                "{name} keeps its states in torchao's tensor subclasses, which FSDP1 cannot gather when it saves them.",
                "{name} 用 torchao 的张量子类保存状态，FSDP1 保存时无法聚合。",
            ).format(name=name.value),
            certainty=Certainty.LIKELY,
            cure=self.cures,
            spans=(name.span(), run.accelerate.distributed_type.span()),
        )
