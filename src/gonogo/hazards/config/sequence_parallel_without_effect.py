from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.hazards.facts.as_run import facts_of_ranks_with_steps
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord, translated

_EXCHANGE_OPERATORS = ("alltoall", "all_to_all", "send", "recv")
"""The operators by which Ulysses exchanges heads and ring attention passes keys and values on."""


class SequenceParallelWithoutEffect(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """No rank that made a step ever exchanged heads, keys or values with others."""
        runs = facts_of_ranks_with_steps(record)
        if not runs or any(run.asked.sequence_parallel < 2 or _exchanges_between_ranks(rank) for rank, run in runs):
            return
        _, run = runs[0]
        yield self.finding(
            self.texts["cause"].format(
                size=run.asked.sequence_parallel,
                tokens=translated(" (of {most:,} tokens)").format(most=run.tokens[1]) if run.tokens else "",
            ),
            ranks=tuple(rank.rank for rank, _ in runs),
        )


def _exchanges_between_ranks(rank: RankRecord) -> bool:
    return any(word in total.operator for total in rank.collectives for word in _EXCHANGE_OPERATORS)
