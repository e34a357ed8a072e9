from gonogo.evidence.rehearsal.failures import failed_ranks, failure_places
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Text

_NO_GRAD_MESSAGE = "element 0 of tensors does not require grad"
_GATHERS = ("allgather", "all_gather")


class GatheredOutputsWithoutGradient(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A first backward without a gradient, of a model that can be trained, on ranks that gathered before it."""
        for failed in failed_ranks(record):
            failure, rank = failed.failure, failed.first
            trainable = rank.as_run is not None and rank.as_run.trainable
            gathered = any(total.operator.lstrip("_").startswith(_GATHERS) for total in rank.collectives)
            if failure.phase != "backward" or _NO_GRAD_MESSAGE not in failure.message or rank.steps or not trainable:
                continue
            if not gathered or (rank.as_run is not None and rank.as_run.strategy.startswith(("FSDP", "DeepSpeed"))):
                continue  # which gather parameters
            yield self.finding(
                Text(
                    "The model has {count} trainable parameters, and the loss has no gradient at all: the ranks have "
                    "gathered by all_gather before it, and what that gathers has none.",
                    "模型有 {count} 个可训练参数，而损失完全没有梯度：此前各 rank 用 all_gather 收集过张量，收集来的"
                    "张量没有梯度。",
                ).format(count=f"{trainable:,}"),
                certainty=Certainty.LIKELY,
                cure=(
                    Text(
                        "Put the rank's own tensor back after gathering: parts[dist.get_rank()] = x",
                        "收集之后把本 rank 自己的张量放回原位：parts[dist.get_rank()] = x",
                    ),
                    Text(
                        "Or gather by torch.distributed.nn.functional.all_gather, which has a backward",
                        "或用带反向传播的 torch.distributed.nn.functional.all_gather 收集",
                    ),
                ),
                spans=failure_places(failure),
                ranks=failed.ranks,
                module=failure.module,
                confirm=Text(
                    "Print requires_grad of what was gathered, and of the loss, before backward: both are False",
                    "在 backward 之前打印收集结果与损失的 requires_grad：均为 False",
                ),
            )
