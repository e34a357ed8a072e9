from functools import partial

from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text


class DsPrescaleGradientsWithZero(Hazard):
    """prescale_gradients or gradient_predivide_factor stands beside ZeRO-2 or ZeRO-3.

    ## What happens
    "AssertionError: pre-scale gradients is not yet supported with ZeRO-2 with reduce scatter enabled", or
    "gradient_predivide_factor != 1.0 is not yet supported".

    ## Why
    Reduce-scatter, ZeRO's default, divides gradients itself. Before 0.13 ZeRO-1 was refused as well.

    ## Cure
    Remove the key; or set `"reduce_scatter": false` (slower).

    ## When it is safe
    Without ZeRO, or with stage 1 in newer releases.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/pull/4964: the check, and why stage 1 is exempt
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage3.py: the assertion at stage
      3
    """

    name = "ds-prescale-gradients-with-zero"
    title = Text(
        en="Gradients can't be pre-scaled with ZeRO's reduce-scatter", zh="使用 ZeRO 的 reduce-scatter 时不能预缩放梯度"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Either key at stage 2 or 3, unless reduce-scatter is off."""
        if config.zero_stage not in (2, 3) or config.raw(ZERO, "reduce_scatter").truth is False:
            return
        if config.raw(ZERO, "reduce_scatter").unknown:
            return
        factor = config.raw("gradient_predivide_factor").number
        wrong = ["prescale_gradients"] if config.raw("prescale_gradients").truth else []
        wrong += ["gradient_predivide_factor"] if factor is not None and factor != 1 else []
        for key in wrong:
            yield self.finding(
                Text(
                    en='"{key}" is {value}, which ZeRO-{stage} does not support with reduce_scatter (on by default).',
                    zh="“{key}” 的值是 {value}，而 ZeRO-{stage} 在使用 reduce_scatter（默认开启）时不支持。",
                ).format(key=key, value=as_json(config.raw(key).value), stage=config.zero_stage),
                cure=(
                    Text("Remove {key}", "去掉 {key}").format(key=key),
                    Text(
                        'Or set "reduce_scatter": false in zero_optimization',
                        "或在 zero_optimization 中设置 “reduce_scatter”: false",
                    ),
                ),
                spans=(span_in(config, key), span_in(config, ZERO, "reduce_scatter") or span_in(config, ZERO, "stage")),
                fixes=fix_of(
                    Text("remove {key}", "去掉 {key}").format(key=key), partial(config.removing, key), safe=False
                ),
            )
