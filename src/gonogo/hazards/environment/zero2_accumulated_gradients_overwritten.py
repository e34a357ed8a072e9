from gonogo.hazards.facts.zero_usage import stage_span
from gonogo.hazards.rule import Certainty, Run, translated
from gonogo.hazards.version_rule import IncompatibleVersions, VersionContext


class Zero2AccumulatedGradientsOverwritten(IncompatibleVersions):
    def version_context(self, run: Run) -> VersionContext | None:
        """Applies at stage 2 with gradient accumulation and the optimizer on the GPU."""
        config = run.config
        if config is None or config.zero_stage != 2:
            return None
        if config.offload_target("optimizer").get("none") not in (None, "none"):
            return None
        given = config.get("gradient_accumulation_steps")
        steps = given.number
        if steps == 1 or given.absent:
            return None
        lost = translated("the others are lost")
        if steps is not None:
            lost = translated("{rest} of {steps} are lost in each step")
            lost = lost.format(rest=int(steps) - 1, steps=int(steps))
        place = given.place or config.raw("gradient_accumulation_steps").place
        label = translated("gradients are accumulated")
        return VersionContext(
            {"lost": lost},
            (place.span(label) if place is not None else None, stage_span(run)),
            Certainty.POSSIBLE if steps is None else Certainty.CERTAIN,
        )
