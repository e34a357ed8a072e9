from gonogo.hazards.facts.divisors import smallest_divisors_text
from gonogo.hazards.post_training._generation_batch import generation_batch
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run, translated


class GrpoGenerationsNotDividingBatch(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Numbers from the launch, its config file and its script that don't divide."""
        batch = generation_batch(launch, run)
        if batch is None or batch.completions % batch.generations == 0:
            return
        would_do = smallest_divisors_text(batch.completions, minimum=2)
        yield self.finding(
            self.texts["cause"].format(how=batch.how, completions=batch.completions, n=batch.generations),
            certainty=batch.certainty,
            cure=translated("Use num_generations={divisors}, or a batch that is divisible by {n}").format(
                divisors=would_do, n=batch.generations
            )
            if would_do
            else translated("Use a batch divisible by {n}").format(n=batch.generations),
            spans=(*batch.spans, launch.place.span()),
            confirm=() if batch.certainty is Certainty.CERTAIN else self.confirm,
        )
