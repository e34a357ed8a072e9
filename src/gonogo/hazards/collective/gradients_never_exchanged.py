from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord, Severity, translated

# Collectives that don't exchange gradients: they broadcast weights, wait, or send objects.
_NON_GRADIENT_COLLECTIVES = (
    "broadcast",
    "barrier",
    "allgather",
    "_allgather",
    "gather",
    "scatter",
    "monitored_barrier",
)
_OBJECTS = 1 << 20
"""The size in bytes up to which an all-gather exchanges objects and counts, not gradients."""


class GradientsNeverExchanged(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Steps of several ranks in one group with no collective that could have exchanged gradients."""
        apart = [rank for rank in record.ranks if _exchanges_no_gradients(rank)]
        if not apart:
            return
        wrapped = all(_has_broadcast_weights(rank) for rank in apart)
        first = apart[0]
        yield self.finding(
            self.texts["cause"].format(
                steps=first.steps,
                world=first.formed_world,
                equal=translated(", though the weights were made equal at the start, as DistributedDataParallel does")
                if wrapped
                else "",
            ),
            severity=Severity.ERROR if wrapped else Severity.WARNING,
            ranks=tuple(rank.rank for rank in apart),
        )


def _exchanges_no_gradients(rank: RankRecord) -> bool:
    run = rank.as_run
    return (
        run is not None
        and not run.strategy
        and not run.idle
        and rank.steps > 0
        and rank.formed_world > 1
        and all(
            total.operator.startswith(_NON_GRADIENT_COLLECTIVES)
            and (total.operator.startswith(_NON_GRADIENT_COLLECTIVES[:2]) or total.bytes <= _OBJECTS)
            for total in rank.collectives
        )
    )


def _has_broadcast_weights(rank: RankRecord) -> bool:
    """Whether the broadcasts amount to at least one byte per parameter."""
    broadcast_bytes = sum(total.bytes for total in rank.collectives if total.operator.startswith("broadcast"))
    return 0 < rank.parameter_count <= broadcast_bytes
