from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, word
from gonogo.hazards.facts.deepspeed_settings import ZERO, newer_than, span_in
from gonogo.hazards.rule import Certainty, Pattern, Refusal, Span, Text


class DsMuonWithReduceScatter(ConfigHazard):
    """The optimizer is Muon at stage 3, and reduce_scatter is not off.
    ## What happens
    "ValueError: Muon and reduce scatter cannot be used together".
    ## Why
    Muon orthogonalizes whole gradient matrices; reduce-scatter leaves each rank a slice.
    ## Example
    ```json
    // "optimizer": {"type": "Muon"}
    "zero_optimization": {"stage": 3}                             // wrong: reduce_scatter is on by default
    "zero_optimization": {"stage": 3, "reduce_scatter": false}    // right
    ```
    ## Cure
    Write `"reduce_scatter": false` in zero_optimization.
    ## When it is safe
    At stage 1 and 2 of newer releases.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage3.py: the check
    - https://github.com/deepspeedai/DeepSpeed/pull/8141: stage 1 and 2 support both
    """

    name = "ds-muon-with-reduce-scatter"
    raises = True
    title = Text("Muon is refused with ZeRO-3's reduce-scatter", "Muon 不能与 ZeRO-3 的 reduce-scatter 搭配")
    refusal = Refusal(Pattern(r"Muon and reduce scatter cannot be used together"))

    keys = ("optimizer.type",)
    stages = (3,)
    wrong = word("muon")
    cause = Text(
        "The optimizer is Muon at ZeRO-3, and reduce_scatter is on (its default): DeepSpeed refuses the two together.",
        "ZeRO-3 使用 Muon 优化器，而 reduce_scatter 是开启的（默认值）：DeepSpeed 会拒绝。",
    )
    cure = Text('Write "reduce_scatter": false', "写 “reduce_scatter”: false")
    change = Change(
        Text("switch reduce_scatter off", "关闭 reduce_scatter"),
        to=False,
        key="zero_optimization.reduce_scatter",
        safe=False,
    )

    def around(self, at: Setting) -> Words | None:
        """Reduce-scatter is not off, in a release that has Muon at stage 3."""
        off = at.config.raw(ZERO, "reduce_scatter").truth is False
        return None if off or newer_than(at.run, "<0.18.5") else {}

    def sureness(self, at: Setting) -> Certainty:
        """Certain for the releases that were looked at."""
        return Certainty.CERTAIN if newer_than(at.run, ">=0.18.9") else Certainty.LIKELY

    def spans_beside(self, at: Setting) -> tuple[Span | None, ...]:
        """The setting of reduce-scatter, or the stage whose default it is."""
        return (span_in(at.config, ZERO, "reduce_scatter") or span_in(at.config, ZERO, "stage"),)
