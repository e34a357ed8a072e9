from gonogo.hazards.facts.as_run import facts_of_ranks_with_steps
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord, translated

_SLOWER_IMPLEMENTATIONS = {"sdpa", "eager"}
_KERNELS_BY_IMPLEMENTATION = {"flash_attention_2": "flash", "flash_attention_3": "flash", "sdpa": "sdpa"}


class AttentionImplementationNotUsed(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """The attention operators that actually ran, on every rank that made a step; silent if none is recognized."""
        runs = facts_of_ranks_with_steps(record)
        if not runs:
            return
        needed = _KERNELS_BY_IMPLEMENTATION.get(runs[0][1].asked.attention)
        for _, run in runs:
            slower = set(run.attention) <= _SLOWER_IMPLEMENTATIONS and bool(run.attention)
            if needed is None or not slower or any(name.startswith(needed) for name in run.attention):
                return
        run = runs[0][1]
        yield self.finding(
            translated("{model} is set to {asked}, but its attention ran as {seen}.").format(
                model=run.model, asked=run.asked.attention, seen=", ".join(run.attention)
            ),
            ranks=tuple(rank.rank for rank, _ in runs),
        )
