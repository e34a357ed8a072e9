from gonogo.hazards.facts.divisors import divisors
from gonogo.hazards.log_rule import LoggedHazard
from gonogo.hazards.post_training._generation_batch import generation_batch
from gonogo.hazards.rule import Certainty, Findings, Launch, Run, Text


class GrpoGenerationsNotDividingBatch(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The numbers of the launch, its config file and its script."""
        batch = generation_batch(launch, run)
        if batch is None or batch.completions % batch.generations == 0:
            return
        would_do = divisors(batch.completions, least=2)
        yield self.finding(
            Text(
                "{how} = {completions} completions, and num_generations is {n}: the trainer refuses to start.",
                "{how} = {completions} 个生成结果，而 num_generations 为 {n}：训练器会拒绝启动。",
            ).format(how=batch.how, completions=batch.completions, n=batch.generations),
            certainty=batch.certainty,
            cure=Text(
                "Take num_generations={divisors}, or a batch that {n} divides",
                "取 num_generations={divisors}，或取能被 {n} 整除的批次",
            ).format(divisors=would_do, n=batch.generations)
            if would_do
            else Text("Use a batch that {n} divides", "取能被 {n} 整除的批次").format(n=batch.generations),
            spans=(*batch.spans, launch.place.span()),
            confirm=() if batch.certainty is Certainty.CERTAIN else self.confirm,
        )
