from gonogo.hazards.facts.as_run import facts_of_ranks_with_steps
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord

_MIN_UNQUANTIZED_FRACTION = 0.2
"""A share of all parameters: every quantized model keeps less than that unquantized (heads, projectors, routers)."""


class QuantizedModelKeepsExperts(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Weights that are not quantized, not trained and not embeddings, if they are a large part of the model."""
        for rank, run in facts_of_ranks_with_steps(record):
            left = sum(each.parameters for each in run.unquantized)
            if not run.asked.quantization or left < _MIN_UNQUANTIZED_FRACTION * run.parameters:
                continue
            largest = ", ".join(f"{each.module} ({each.parameters:,}, {each.dtype})" for each in run.unquantized[:3])
            yield self.finding(
                self.texts["cause"].format(
                    asked=run.asked.quantization,
                    all=run.parameters,
                    quantized=run.quantized,
                    left=left,
                    share=left / run.parameters,
                    largest=largest,
                ),
                ranks=(rank.rank,),
                module=run.unquantized[0].module,
            )
            return
