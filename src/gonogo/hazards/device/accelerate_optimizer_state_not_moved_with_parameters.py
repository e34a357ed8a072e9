from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_TWO = Pattern(r"Expected all tensors to be on the same device.{0,80}\bcpu\b")
_OPTIMIZER = (
    "torch/optim/",
    "optimizer/",
    "optimizers/",
    "prodigy",
    "lookahead",
    "schedulefree",
    "optim.py",
    "optimizer.py",
)
_OTHERS = ("deepspeed/", "fsdp", "clip_grad", "forward", "grad_scaler")
_OFFLOAD = Pattern(r"(?i)offload")


class AccelerateOptimizerStateNotMovedWithParameters(LoggedHazard):
    """An optimizer that makes its state at once (Adagrad, Lookahead, Prodigy, schedule-free) on the CPU, before
    accelerate moves the model.
    ## What happens
    `Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!` in the
    optimizer's `step`, `train` or `eval`, at the first step or after `load_state`.
    ## Why
    Adam makes its moments at the first step, where the parameters are by then. Others make state in `__init__` or
    keep tensors in `param_groups`; `accelerator.prepare` moves `state` and nothing else, and loading a checkpoint
    puts it on the CPU anew.
    ## Example
    ```python
    # wrong: the state is made on the CPU
    optimizer = torch.optim.Adagrad(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    # right
    model = model.to(accelerator.device)
    optimizer = torch.optim.Adagrad(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    ```
    ## Cure
    Move the model before the optimizer is made: model.to(accelerator.device). After loading: move each tensor of
    optimizer.state and optimizer.param_groups to its parameter's device. Upgrade accelerate and the optimizer's
    package.
    ## When it is safe
    For optimizers that make their state at the first step, or a model that is on its device before.
    ## Sources
    - https://github.com/huggingface/accelerate/issues/3372: Prodigy after loading a state
    - https://github.com/pytorch/pytorch/issues/76752: which optimizers mind, and what the docs say
    - https://github.com/kozistr/pytorch_optimizer/issues/306: Lookahead
    - https://github.com/facebookresearch/schedule_free/pull/41: schedule-free's z
    """

    name = "accelerate-optimizer-state-not-moved-with-parameters"
    title = Text(
        "The parameters were moved after the optimizer was made, and its state stayed behind",
        "优化器创建之后移动了参数，而其状态留在原处",
    )
    log_words = ("to be on the same device",)
    ends_at = (("torch/optim/", "torch._fused_adam"), ("lookahead.py", "slow.add_("))
    yields_to = ("fsdp-cpu-offload-device-mismatch", "device-map-auto-trainer-mismatch")
    signs = (
        Sign(says=_TWO, innermost=_OPTIMIZER, frames=(_OPTIMIZER,), outside=_OTHERS, unless=_OFFLOAD),
        Sign(
            cut=(("torch/optim/", "_single_tensor"), ("torch/optim/adagrad.py", "adagrad")),
            within=1,
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "The optimizer computes with parameters on the GPU and state of its own on the CPU: it made that "
        "before the model was moved, or it was loaded there.",
        "优化器用 GPU 上的参数与 CPU 上的自身状态计算：状态是在移动模型之前创建的，或被加载到了 CPU。",
    )
    cures = (
        Text(
            "Move the model before the optimizer is made: model.to(accelerator.device)",
            "创建优化器之前先移动模型：model.to(accelerator.device)",
        ),
        Text(
            "After loading: move each tensor of optimizer.state and optimizer.param_groups to its parameter's device",
            "加载之后：把 optimizer.state 与 optimizer.param_groups 中的张量移到各自参数的设备",
        ),
        Text("Upgrade accelerate and the optimizer's package", "升级 accelerate 与优化器所在的包"),
    )
    confirm = Text(
        "The innermost frames are the optimizer's, and one of its state tensors is on the CPU",
        "最内层的帧属于优化器，且其某个状态张量在 CPU 上",
    )
