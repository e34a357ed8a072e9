from gonogo.evidence.rehearsal.failures import failed_ranks, failure_places
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord

_NO_GRAD_MESSAGE = "element 0 of tensors does not require grad"
_GATHER_PREFIXES = ("allgather", "all_gather")


class GatheredOutputsWithoutGradient(Hazard):
    """``all_gather`` returns tensors without a graph, so a loss of gathered outputs has no gradient."""

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A first backward that fails without any gradient, in a trainable model, after the ranks gathered."""
        for failed in failed_ranks(record):
            failure, rank = failed.failure, failed.first
            trainable = rank.as_run is not None and rank.as_run.trainable
            gathered = any(total.operator.lstrip("_").startswith(_GATHER_PREFIXES) for total in rank.collectives)
            if failure.phase != "backward" or _NO_GRAD_MESSAGE not in failure.message or rank.steps or not trainable:
                continue
            if not gathered or (rank.as_run is not None and rank.as_run.strategy.startswith(("FSDP", "DeepSpeed"))):
                continue  # FSDP and DeepSpeed gather parameters
            yield self.finding(
                self.texts["cause"].format(count=f"{trainable:,}"),
                spans=failure_places(failure),
                ranks=failed.ranks,
                module=failure.module,
            )
