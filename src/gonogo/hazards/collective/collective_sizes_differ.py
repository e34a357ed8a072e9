from collections.abc import Iterator

from gonogo.evidence.dumps.parted import parted
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.hazards.collective import _recorded as recorded
from gonogo.hazards.collective._same_sizes import all_gradients, one_type
from gonogo.hazards.facts.all_ranks import in_same_order
from gonogo.hazards.rule import Certainty, Finding, Findings, Fix, Hazard, RehearsalRecord, Run, Text

_CURE = (
    Text(
        "Give it the same shape and dtype on every rank: pad to the longest (all_reduce the length with MAX first), or "
        "reduce sums and counts instead of lists",
        "让每个 rank 的形状和 dtype 相同：先用 MAX 对长度做 all_reduce，再填充到最长；或只归约总和与个数",
    ),
    Text(
        "Objects of any size: dist.all_gather_object; Accelerate: pad_across_processes, gather_for_metrics",
        "任意大小的对象：dist.all_gather_object；Accelerate：pad_across_processes、gather_for_metrics",
    ),
)


class CollectiveSizesDiffer(Hazard):
    """The ranks make the same collective call with tensors of different sizes or types.
    ## What happens
    Some sizes hang, others go through and give wrong numbers on some ranks; gloo raises, or ends the process.
    TORCH_DISTRIBUTED_DEBUG=DETAIL says "Detected mismatch between collectives on ranks".
    ## Why
    Each rank sends and expects as many bytes as its own tensor has; neither NCCL nor torch.distributed compares the
    ranks. The last batch of a loader, texts of different length, a list of the losses of a batch, an integer on one
    rank and a float on another, gradients that exist on some ranks only.
    ## Example
    ```python
    dist.all_reduce(losses)                                # wrong: the ranks' batches have 4 and 3 samples
    dist.all_reduce(torch.stack([losses.sum(), count]))    # right: two numbers on every rank
    ```
    ## Cure
    The same shape and type on all ranks: pad, or reduce sums and counts.
    ## When it is safe
    `all_to_all` with split sizes that agree, `all_gather_object` and its like, `all_gather` into a list whose entries
    have each rank's size.
    ## Sources
    - https://github.com/NVIDIA/nccl/issues/1417: some sizes hang, others give wrong results
    - https://github.com/NVIDIA/nccl/issues/1394: 100 and 200 rows go through, 1 and 2 hang
    - https://huggingface.co/docs/accelerate/usage_guides/debug: different shapes hang until the time-out
    """

    name = "collective-sizes-differ"
    title = Text(
        "The ranks make one collective call with tensors of different sizes or types",
        "各 rank 在同一次集合通信中使用的张量大小或类型不同",
    )

    yields_to = ("rollout-engine-ranks-apart",)

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """The same operator of one group, with other sizes, types or reductions."""
        divergence = rank_divergence(record)
        if divergence is None:
            return
        if divergence.divergence.kind == "other-size":
            yield self.divergence_finding(divergence, divergence.telling_side(), cure=_CURE)

    def in_log(self, log: FailureLog) -> Findings:
        """Flight Recorder dumps of ranks whose calls of one number have other sizes or types."""
        unlike = parted(log.dumps)
        if unlike is not None and unlike.kind == "other-size":
            yield self.finding(
                recorded.told(unlike),
                certainty=Certainty.LIKELY,
                cure=_CURE,
                spans=recorded.span(unlike),
                ranks=(*unlike.waiting, *unlike.others),
                confirm=recorded.LOOK_AT_LOGS,
            )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """The same order, type or gradients on every rank."""
        divergence = rank_divergence(record)
        if divergence is not None:
            yield from in_same_order(divergence, run)
            yield from one_type(divergence, run)
            yield from all_gradients(divergence, run)
