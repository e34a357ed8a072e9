from gonogo.hazards.config._written import ZERO, newer_than, optimizer_type, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Text


class DsMuonWithReduceScatter(Hazard):
    """The optimizer is Muon at stage 3, and reduce_scatter is not off.

    ## What happens
    "ValueError: Muon and reduce scatter cannot be used together".

    ## Why
    Muon orthogonalizes whole gradient matrices; reduce-scatter leaves each rank a slice.

    ## Cure
    Write `"reduce_scatter": false` in zero_optimization.

    ## When it is safe
    At stage 1 and 2 of newer releases.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage3.py: the check
    - https://github.com/deepspeedai/DeepSpeed/pull/8141: stage 1 and 2 support both
    """

    name = "ds-muon-with-reduce-scatter"
    title = Text(en="Muon is refused with ZeRO-3's reduce-scatter", zh="Muon 不能与 ZeRO-3 的 reduce-scatter 搭配")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Muon at stage 3 with reduce-scatter, which is the default."""
        if (optimizer_type(config) or "").lower() != "muon" or config.zero_stage != 3:
            return
        if config.raw(ZERO, "reduce_scatter").truth is False or newer_than(run, "<0.18.5"):
            return
        yield self.finding(
            Text(
                en="The optimizer is Muon at ZeRO-3, and reduce_scatter is on (its default): DeepSpeed refuses the two "
                "together.",
                zh="ZeRO-3 使用 Muon 优化器，而 reduce_scatter 是开启的（默认值）：DeepSpeed 会拒绝。",
            ),
            certainty=Certainty.CERTAIN if newer_than(run, ">=0.18.9") else Certainty.LIKELY,
            cure=(Text('Write "reduce_scatter": false', "写 “reduce_scatter”: false"),),
            spans=(
                span_in(config, "optimizer", "type"),
                span_in(config, ZERO, "reduce_scatter") or span_in(config, ZERO, "stage"),
            ),
            fixes=fix_of(
                Text("switch reduce_scatter off", "关闭 reduce_scatter"),
                lambda: config.inserting(ZERO, "reduce_scatter", value=False),
                safe=False,
            ),
        )
