from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text


class DsLegacyStage1(Hazard):
    """legacy_stage1 is true.

    ## What happens
    "Exception: The deprecated version of ZeRO Stage 1 is not supported in deepspeed >= 0.5.9".

    ## Why
    The key is still read, only to say so.

    ## Cure
    Remove it: today's stage 1 takes its place.

    ## When it is safe
    `false`, the default.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: the exception
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: legacy_stage1
    """

    name = "ds-legacy-stage1"
    title = Text(en="The old ZeRO-1 is gone", zh="旧的 ZeRO-1 实现已被移除")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The switch on, with ZeRO on."""
        if config.raw(ZERO, "legacy_stage1").truth is not True or config.zero_stage == 0:
            return
        yield self.finding(
            Text(
                en="legacy_stage1 is true: DeepSpeed from 0.5.9 on stops there.",
                zh="legacy_stage1 为 true：DeepSpeed 自 0.5.9 起会因此停止。",
            ),
            cure=(Text("Remove the key", "去掉该键"),),
            spans=(span_in(config, ZERO, "legacy_stage1"),),
            fixes=fix_of(Text("remove the key", "去掉该键"), lambda: config.removing(ZERO, "legacy_stage1")),
        )
