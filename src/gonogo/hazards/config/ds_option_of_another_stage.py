from functools import partial

from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Severity, Text

_BELONGS = (("round_robin_gradients", False, (1, 2)), ("ignore_unused_parameters", True, (2,)))


def _said(stages: tuple[int, ...]) -> str:
    return ", ".join(map(str, stages))


class DsOptionOfAnotherStage(Hazard):
    """round_robin_gradients or ignore_unused_parameters is set at a stage that does not look at it.

    ## What happens
    Nothing: the option is ignored.

    ## Why
    round_robin_gradients belongs to stage 1 and 2, ignore_unused_parameters to stage 2.

    ## Cure
    Remove the option, or take the stage that it belongs to.

    ## When it is safe
    Always harmless; a config for several stages may hold both.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: which stage each option
      belongs to
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: what each stage is given
    """

    name = "ds-option-of-another-stage"
    title = Text(en="An option of ZeRO has no effect at this stage", zh="ZeRO 的某个选项在当前 stage 不起作用")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Options with another value than the default, at a stage that is known."""
        stage = config.zero_stage
        if not stage:
            return
        for key, default, stages in _BELONGS:
            value = config.raw(ZERO, key).truth
            if value is None or value is default or stage in stages:
                continue
            yield self.finding(
                Text(
                    en="{key} is {value} at stage {stage}, where it has no effect: it belongs to stage {stages}.",
                    zh="{key} 为 {value}，而 stage 为 {stage}；它只属于 stage {stages}，此处不起作用。",
                ).format(key=key, value=as_json(value), stage=stage, stages=_said(stages)),
                severity=Severity.NOTE,
                cure=(Text("Remove {key}", "去掉 {key}").format(key=key),),
                spans=(span_in(config, ZERO, key), span_in(config, ZERO, "stage")),
                fixes=fix_of(Text("remove {key}", "去掉 {key}").format(key=key), partial(config.removing, ZERO, key)),
            )
