from gonogo.hazards.version_rule import Around, UnfitVersions
from gonogo.hazards.rule import Certainty, Run, Severity, Text


class AccelerateDeepspeedLearningRateRegression(UnfitVersions):
    """accelerate 0.23 to 0.25 step the learning rate's scheduler wrongly under DeepSpeed.
    ## What happens
    Nothing is raised. With several GPUs the model learns much slower than with one, or than with accelerate 0.22 and
    the same DeepSpeed.
    ## Why
    A change in 0.23 (PR 1909) altered how the scheduler is prepared for DeepSpeed; PR 2304 took it back, for 0.26.
    ## Example
    ```text
    accelerate==0.25.0    # wrong, with deepspeed on several GPUs
    accelerate==0.26.1    # right
    ```
    ## Cure
    Install accelerate 0.26 or newer, or 0.22.
    ## When it is safe
    On one GPU, or with a constant learning rate.
    ## Sources
    - https://github.com/huggingface/accelerate/pull/2304: the regression from 0.22 to 0.23, and its revert
    - https://github.com/huggingface/accelerate/pull/1909: the change
    """

    name = "accelerate-deepspeed-learning-rate-regression"
    title = Text(
        "This accelerate steps the learning rate wrongly under DeepSpeed",
        "此版本 accelerate 在 DeepSpeed 下错误地推进学习率",
    )
    versions = (("accelerate", ">=0.23,<0.26"),)
    pinned = True
    install = ("accelerate", ">=0.26.0")
    severity, certainty = Severity.WARNING, Certainty.LIKELY
    cause = Text(
        "{accelerate} steps the learning rate's scheduler wrongly under DeepSpeed with {world} processes: the model "
        "learns slower, and nothing is raised.",
        "{accelerate} 在 DeepSpeed 下以 {world} 个进程训练时错误地推进学习率：模型学习变慢，且无报错。",
    )

    def around(self, run: Run) -> Around | None:
        """DeepSpeed, more than one process, and a learning rate that changes."""
        if not run.deepspeed_on or run.world_size in (None, 1):
            return None
        if run.arguments.get("lr_scheduler_type").get() == "constant":
            return None
        return Around({"world": run.world_size}, (run.config_field.span(),))
