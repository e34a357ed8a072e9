from gonogo.evidence.rehearsal.failures import failed_ranks, failure_places
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, translated

_NO_GRAD_MESSAGE = "element 0 of tensors does not require grad"
_GATHER_PREFIXES = ("allgather", "all_gather")


class GatheredOutputsWithoutGradient(Hazard):
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
                translated(
                    "The model has {count} trainable parameters, but the loss has no gradient at all: the ranks "
                    "called all_gather before it, and the output of all_gather carries none."
                ).format(count=f"{trainable:,}"),
                certainty=Certainty.LIKELY,
                cure=(
                    translated("Put the rank's own tensor back after gathering: parts[dist.get_rank()] = x"),
                    translated("Or gather with torch.distributed.nn.functional.all_gather, which has a backward"),
                ),
                spans=failure_places(failure),
                ranks=failed.ranks,
                module=failure.module,
                confirm=translated(
                    "Print requires_grad of what was gathered, and of the loss, before backward: both are False"
                ),
            )
