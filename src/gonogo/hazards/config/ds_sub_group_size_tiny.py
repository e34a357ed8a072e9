from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, Text

_TOO_SMALL = 1_000_000


class DsSubGroupSizeTiny(Hazard):
    """sub_group_size is below a million elements at stage 3.

    ## What happens
    The optimizer step takes many times as long: one call of the optimizer a sub-group, thousands of them.

    ## Why
    ZeRO-3 updates sub_group_size elements at a time. The size is to be lowered only when memory runs out in the
    step, and then to 1e8.

    ## Cure
    Leave it at 1e9, the default.

    ## When it is safe
    For tiny models in tests.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/1145: when to change the size
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: sub_group_size
    """

    name = "ds-sub-group-size-tiny"
    title = Text(
        en="sub_group_size cuts the optimizer step into very many pieces", zh="sub_group_size 把优化器更新切得过碎"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A size far below what any model needs."""
        size = config.raw(ZERO, "sub_group_size").number
        if config.zero_stage != 3 or size is None or not 0 < size < _TOO_SMALL:
            return
        yield self.finding(
            Text(
                en="sub_group_size is {size:,.0f}: the optimizer is called once for every {size:,.0f} parameters of a "
                "rank.",
                zh="sub_group_size 为 {size:,.0f}：每个 rank 的参数每 {size:,.0f} 个就要调用一次优化器。",
            ).format(size=size),
            severity=Severity.WARNING,
            certainty=Certainty.LIKELY,
            cure=(Text("Write 1e9, or 1e8 where the step runs out of memory", "写 1e9；若更新时显存不足，写 1e8"),),
            spans=(span_in(config, ZERO, "sub_group_size"),),
            fixes=fix_of(
                Text("take the default", "使用默认值"),
                lambda: config.replacing(ZERO, "sub_group_size", value=1000000000),
                safe=False,
            ),
        )
