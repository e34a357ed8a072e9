from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class CheckpointRecomputeDiffers(LoggedHazard):
    """A checkpointed part computes something else the second time.
    ## What happens
    "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was saved
    during the original forward and recomputation", or "Recomputed values for the following tensors have
    different metadata than during the forward pass", in backward.
    ## Why
    Gradient checkpointing runs a part of the forward once more in backward. The part has to do the same again:
    what it does may not depend on what the first time changed. A counter, a cache that is filled, a `training`
    flag, a random choice outside torch's generators (`random`, NumPy: only torch's states are restored), tokens
    routed by values that are not reproducible, autocast that is on in forward and off in backward.
    ## Example
    ```python
    def forward(self, x):                       # wrong: the second time the other branch
        self.calls += 1
        return self.a(x) if self.calls % 2 else self.b(x)

    x = checkpoint(self.block, x, use_a, use_reentrant=False)     # right: the choice is made outside
    ```
    ## Cure
    Make the choice outside the checkpointed part and hand it in; `use_cache=False`; torch's random numbers
    instead of Python's and NumPy's; keep autocast around both or inside the part. `with
    torch.utils.checkpoint.set_checkpoint_debug_enabled(True):` prints the operators of both times.
    `determinism_check="none"` only hides the difference.
    ## When it is safe
    Where the part depends on its arguments and torch's generators alone.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/141896: autocast's cache of casted weights
    - https://github.com/huggingface/trl/issues/4314: half of the sequence the second time, under context parallelism
    - https://github.com/jzhang38/TinyLlama/issues/152: 27 tensors saved, 8 the second time, by a fused operator
    """

    name = "checkpoint-recompute-differs"
    title = Text("A checkpointed part computes something else in backward", "被检查点的部分在反向重算时结果不同")
    log_words = ("during recomputation", "and recomputation", "Recomputed values")
    signs = (
        Sign(
            Pattern(
                r"A different number of tensors was saved during the original forward and recomputation"
                r"|Recomputed values for the following tensors have different metadata[\s\S]*recomputed metadata"
            )
        ),
        Sign(Pattern(r"Recomputed values\s+for the following tensors\s+have different metadata"), Certainty.POSSIBLE),
    )
    yields_to = (
        "checkpoint-recompute-routes-differently",
        "zero3-gradient-checkpoint-recompute",
        "fsdp2-checkpoint-recompute-resharded",
        "cache-with-gradient-checkpointing",
    )
    cause = Text(
        "Gradient checkpointing ran a part of the forward again, and it did not do the same: something "
        "that it depends on had changed since.",
        "梯度检查点重新执行了前向的一部分，但结果不同：它所依赖的内容在此期间发生了变化。",
    )
    cures = (
        Text(
            "Take out of the checkpointed part what changes from call to call: counters, caches "
            "(use_cache=False), choices by Python's or NumPy's random numbers; hand the choice in as an "
            "argument",
            "把每次调用会变化的内容移出被检查点的部分：计数器、缓存（use_cache=False）、用 Python 或 NumPy 随"
            "机数作的选择；把选择作为参数传入",
        ),
        Text(
            "with torch.utils.checkpoint.set_checkpoint_debug_enabled(True): shows the operators of both times",
            "with torch.utils.checkpoint.set_checkpoint_debug_enabled(True): 会显示两次执行的算子",
        ),
    )
