from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text


class DsHpzPartitionNotDividingWorld(Hazard):
    """The secondary partition of ZeRO++ is no divisor of the world size.

    ## What happens
    "AssertionError: 12 is not divisible by 8" when the model is divided.

    ## Why
    hpZ makes groups of that many ranks, usually one node's, and every rank must be in one.

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
    title = Text(
        en="zero_hpz_partition_size does not divide the number of ranks", zh="zero_hpz_partition_size 不能整除 rank 数"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The size against the launch's number of processes, at stage 3."""
        size = config.raw(ZERO, "zero_hpz_partition_size").number
        ranks = run.world_size
        if config.zero_stage != 3 or not isinstance(size, int) or size <= 1 or ranks is None or size >= ranks:
            return
        if ranks % size == 0:
            return
        yield self.finding(
            Text(
                en="zero_hpz_partition_size is {size} and the run has {ranks} ranks: {ranks} is not divisible by "
                "{size}.",
                zh="zero_hpz_partition_size 为 {size}，而运行有 {ranks} 个 rank：{ranks} 不能被 {size} 整除。",
            ).format(size=size, ranks=ranks),
            cure=(
                Text("Write a divisor of {ranks}: {divisors}", "写 {ranks} 的约数：{divisors}").format(
                    ranks=ranks, divisors=", ".join(str(one) for one in range(2, ranks + 1) if ranks % one == 0)
                ),
            ),
            spans=(
                span_in(config, ZERO, "zero_hpz_partition_size"),
                run.launch.world_size.span() if run.launch else None,
            ),
        )
