from functools import partial

from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Severity, Text

_SWITCHES = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients")


class DsZeroppBelowStage3(Hazard):
    """zero_hpz_partition_size, zero_quantized_weights or zero_quantized_gradients is set at stage 1 or 2.

    ## What happens
    The run starts, communicates as much as before, and is not faster.

    ## Why
    ZeRO++ works on what only stage 3 has: divided parameters and their all-gathers.

    ## Cure
    Take stage 3, or remove the keys.

    ## When it is safe
    `zero_hpz_partition_size` of 1 and `false` are the defaults.

    ## Sources
    - https://www.deepspeed.ai/tutorials/zeropp/: ZeRO++ with stage 3
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: the settings go to the
      stage-3 optimizer only
    """

    name = "ds-zeropp-below-stage-3"
    title = Text(
        en="A ZeRO++ setting stands below stage 3, which has no effect", zh="在 stage 3 以下设置了 ZeRO++，不起作用"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The keys with other values than the defaults at stage 0, 1 or 2."""
        stage = config.zero_stage
        if stage is None or stage == 3:
            return
        size = config.raw(ZERO, "zero_hpz_partition_size").number
        found = ["zero_hpz_partition_size"] if size is not None and size > 1 else []
        found += [key for key in _SWITCHES if config.raw(ZERO, key).truth]
        for key in found:
            yield self.finding(
                Text(
                    en='"{key}" is {value} at stage {stage}; it has an effect at stage 3 only.',
                    zh="“{key}” 的值是 {value}，而 stage 为 {stage}；它只在 stage 3 起作用。",
                ).format(key=key, value=as_json(config.raw(ZERO, key).value), stage=stage),
                severity=Severity.WARNING,
                cure=(
                    Text('Set "stage": 3', "设置 “stage”: 3"),
                    Text("Or remove {key}", "或去掉 {key}").format(key=key),
                ),
                spans=(span_in(config, ZERO, key), span_in(config, ZERO, "stage")),
                fixes=fix_of(Text("remove {key}", "去掉 {key}").format(key=key), partial(config.removing, ZERO, key)),
            )
