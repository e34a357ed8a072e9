from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run, translated


class MsSwiftReadsOptimizerPlaceholder(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """An ms-swift training run whose DeepSpeed config has an optimizer."""
        if run.framework != "ms-swift" or run.config is None:
            return
        block = run.config.raw("optimizer")
        versions = [run.environment.within("ms-swift", ">=4.2"), run.environment.within("transformers", ">=5.3")]
        if not block.known or False in versions or run.arguments.get("optimizer").known:
            return
        sure = None not in versions and run.arguments.complete
        yield self.finding(
            self.cause,
            certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
            cure=self.cures[0],
            spans=(
                place.span(translated("the optimizer block")) if (place := run.config.key_place("optimizer")) else None,
                launch.place.span(),
            ),
            confirm=self.confirm,
        )
