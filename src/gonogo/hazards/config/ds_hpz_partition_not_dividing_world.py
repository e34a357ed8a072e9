from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, number
from gonogo.hazards.rule import Span, Text


class DsHpzPartitionNotDividingWorld(ConfigHazard):
    """The secondary partition of ZeRO++ is no divisor of the world size.
    ## What happens
    "AssertionError: 12 is not divisible by 8" when the model is divided.
    ## Why
    hpZ makes groups of that many ranks, usually one node's, and every rank must be in one.
    ## Example
    ```json
    "zero_hpz_partition_size": 4   // wrong on 6 ranks
    "zero_hpz_partition_size": 3   // right
    ```
    ## Cure
    Write the number of GPUs of a node, and use whole nodes.
    ## When it is safe
    Where it divides the ranks, or is larger than their number.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/utils/groups.py:
      `_create_zero_param_parallel_group`
    - https://github.com/deepspeedai/DeepSpeed/issues/4386: ZeRO++ with numbers of nodes that fit and do not
    """

    name = "ds-hpz-partition-not-dividing-world"
    raises = True
    title = Text(
        "zero_hpz_partition_size does not divide the number of ranks", "zero_hpz_partition_size 不能整除 rank 数"
    )

    keys = ("zero_optimization.zero_hpz_partition_size",)
    stages = (3,)
    wrong = number(lambda size: size > 1 and size == int(size))
    cause = Text(
        "{key} is {size} and the run has {ranks} ranks: {ranks} is not divisible by {size}.",
        "{key} 为 {size}，而运行有 {ranks} 个 rank：{ranks} 不能被 {size} 整除。",
    )
    cure = (Text("Write a divisor of {ranks}: {divisors}", "写 {ranks} 的约数：{divisors}"),)

    def around(self, at: Setting) -> Words | None:
        """The number of ranks, where the size does not divide it."""
        size, ranks = int(at.field.number or 0), at.run.world_size
        if ranks is None or size >= ranks or ranks % size == 0:
            return None
        divisors = ", ".join(str(one) for one in range(2, ranks + 1) if ranks % one == 0)
        return {"size": size, "ranks": ranks, "divisors": divisors}

    def spans_beside(self, at: Setting) -> tuple[Span | None, ...]:
        """Where the number of ranks is set."""
        return (at.run.launch.world_size.span() if at.run.launch else None,)
