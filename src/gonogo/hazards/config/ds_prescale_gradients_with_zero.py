from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, given
from gonogo.hazards.facts.deepspeed_settings import ZERO, span_in
from gonogo.hazards.rule import Pattern, Refusal, Span, Text


class DsPrescaleGradientsWithZero(ConfigHazard):
    """prescale_gradients or gradient_predivide_factor stands beside ZeRO-2 or ZeRO-3.
    ## What happens
    "AssertionError: pre-scale gradients is not yet supported with ZeRO-2 with reduce scatter enabled", or
    "gradient_predivide_factor != 1.0 is not yet supported".
    ## Why
    Reduce-scatter, ZeRO's default, divides gradients itself. Before 0.13 ZeRO-1 was refused as well.
    ## Example
    ```json
    // "prescale_gradients": true
    "zero_optimization": {"stage": 2}                             // wrong: reduce_scatter is on by default
    "zero_optimization": {"stage": 2, "reduce_scatter": false}    // right; or drop prescale_gradients
    ```
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
    raises = True
    title = Text(
        "Gradients can't be pre-scaled with ZeRO's reduce-scatter", "使用 ZeRO 的 reduce-scatter 时不能预缩放梯度"
    )
    refusal = Refusal(
        Pattern(
            r"pre-scale gradients is not yet supported with ZeRO|gradient_predivide_factor != 1\.0 is "
            r"not yet supported"
        )
    )

    keys = ("prescale_gradients", "gradient_predivide_factor")
    stages = (2, 3)
    wrong = given
    cause = Text(
        '"{key}" is {value}, which ZeRO-{stage} does not support with reduce_scatter (on by default).',
        "“{key}” 的值是 {value}，而 ZeRO-{stage} 在使用 reduce_scatter（默认开启）时不支持。",
    )
    cure = (
        Text("Remove {key}", "去掉 {key}"),
        Text(
            'Or set "reduce_scatter": false in zero_optimization',
            "或在 zero_optimization 中设置 “reduce_scatter”: false",
        ),
    )
    change = Change(Text("remove {key}", "去掉 {key}"), safe=False)

    def around(self, at: Setting) -> Words | None:
        """Either has another value than the default, and reduce-scatter is not off."""
        scatter = at.config.raw(ZERO, "reduce_scatter")
        scaled = at.field.truth if at.keys[0] == "prescale_gradients" else at.field.number not in (None, 1)
        return {} if scaled and not scatter.unknown and scatter.truth is not False else None

    def spans_beside(self, at: Setting) -> tuple[Span | None, ...]:
        """The setting of reduce-scatter, or the stage whose default it is."""
        return (span_in(at.config, ZERO, "reduce_scatter") or span_in(at.config, ZERO, "stage"),)
