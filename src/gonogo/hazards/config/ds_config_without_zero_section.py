from gonogo.hazards.facts.training_framework import fix_with_edits, uses_accelerate, uses_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, translated


class DsConfigWithoutZeroSection(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A missing section in a config that accelerate certainly reads."""
        if not config.readable or config.problems or not config.raw("zero_optimization").absent:
            return
        if config.source is None or not uses_accelerate(run) or run.launch is None:
            return
        if run.environment.within("transformers", "<4.30"):
            return
        insists = not uses_trainer(run) or bool(run.environment.within("transformers", ">=4.30"))
        first = next((place for keys, _ in config.entries() if (place := config.key_place(*keys)) is not None), None)
        yield self.finding(
            translated('{name} has no "zero_optimization", which accelerate requires in a DeepSpeed config.').format(
                name=config.name
            ),
            certainty=Certainty.CERTAIN if insists else Certainty.LIKELY,
            confirm=self.texts["confirm"],
            spans=(
                (first or config.source.place(0, 0)).span(),
                run.config_field.span(translated("given to accelerate here")),
            ),
            fixes=fix_with_edits(
                translated('Add "zero_optimization" with stage 0'),
                lambda: config.inserting("zero_optimization", value={"stage": 0}),
            ),
        )
