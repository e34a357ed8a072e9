from gonogo.hazards.facts.how_it_trains import with_trainer
from gonogo.hazards.rule import Run
from gonogo.hazards.version_rule import Around, UnfitVersions


class TrainerAccumulatedLossWrongScale(UnfitVersions):
    def around(self, run: Run) -> Around | None:
        """The Trainer, and more than one accumulated micro-batch."""
        given = run.arguments.get("gradient_accumulation_steps")
        if given.number is None or given.number <= 1 or not with_trainer(run):
            return None
        return Around({"steps": int(given.number)}, (given.span(),))
