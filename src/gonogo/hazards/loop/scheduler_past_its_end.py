from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class SchedulerPastItsEnd(LoggedHazard):
    """OneCycleLR is stepped more often than it was made for.
    ## What happens
    "ValueError: Tried to step 1002 times. The specified number of total steps is 1000", in the middle of the
    training, or right after a checkpoint is resumed.
    ## Why
    OneCycleLR knows its last step, and refuses to go beyond. It is made for optimizer steps (`len(loader) //
    accumulation`) and stepped after each batch; or for one epoch, and stepped in several; or for the whole
    batch count over all GPUs, while accelerate steps it once a process; or resumed with its old `total_steps`
    and more epochs.
    ## Example
    ```python
    sched = OneCycleLR(opt, max_lr=3e-4, total_steps=len(loader) // accum)
    for i, batch in enumerate(loader):
        ...
        if (i + 1) % accum == 0:
            opt.step()
        sched.step()                # wrong: once a batch; right: under the if, with the optimizer's step
    ```
    ## Cure
    Step it exactly where the optimizer steps, and make it for `epochs * ceil(len(loader) / accumulation)`
    steps. With accelerate: a scheduler given to `prepare` is stepped once for each process
    (`split_batches=False`), so it is made for that many times the steps, or not given to prepare. Resumed with
    more epochs: make a new one with `last_epoch`.
    ## When it is safe
    With schedulers that have no end (cosine annealing, LambdaLR, those of transformers).
    ## Sources
    - https://github.com/deepinsight/insightface/pull/2143: resumed with more epochs
    - https://github.com/pytorch/pytorch/pull/34581: what total_steps means
    - https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html: stepped after every batch
    """

    name = "scheduler-past-its-end"
    title = Text("The learning rate's schedule is stepped beyond its end", "学习率调度器的步数超过了终点")
    log_words = ("Tried to step",)
    signs = (
        Sign(
            Pattern(r"Tried to step (?P<asked>\d+) times\. The specified number of total steps is (?P<total>\d+)"),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "The scheduler was made for {total} steps; this is step {asked}.",
        "调度器按 {total} 步创建；这是第 {asked} 步。",
    )
    cures = (
        Text(
            "Step it where the optimizer steps (under gradient accumulation not after each batch), and give "
            "total_steps = epochs * optimizer steps an epoch",
            "只在优化器更新处 step（有梯度累积时不要每个批次都 step），并令 total_steps = epoch 数 × 每个 "
            "epoch 的优化器步数",
        ),
        Text(
            "accelerate: a prepared scheduler is stepped once for each process; make it for num_processes "
            "times the steps",
            "accelerate：prepare 过的调度器每个进程都会 step 一次；按步数乘以 num_processes 创建",
        ),
    )
