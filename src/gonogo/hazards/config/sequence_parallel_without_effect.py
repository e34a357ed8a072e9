from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.hazards.facts.as_run import stepped_runs
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Severity, Text

_EXCHANGES = ("alltoall", "all_to_all", "send", "recv")
"""What Ulysses exchanges heads by, and what ring attention passes keys and values on by."""


class SequenceParallelWithoutEffect(Hazard):
    """Sequence parallelism is asked for, and every rank trains on whole sequences.
    ## What happens
    Each rank holds the activations of the whole length, so that the run goes out of memory that was to suffice, and
    what was counted as one sample over several GPUs is a sample each: the global batch is larger than planned.
    ## Why
    The option is parsed and no code of that path reads it (another trainer of the framework, another backend, a model
    without an implementation), or it stands in a config that nothing applies.
    ## Example
    ```sh
    swift sft --model qwen --sequence_parallel_size 2 …    # wrong in a release whose trainer never reads it
    ```
    ## Cure
    Take a release, or a trainer, that implements it for this model, and look for the exchange of heads (all-to-all) or
    of keys (send, recv) in a rehearsal's collectives; or leave the option out and plan for whole sequences.
    ## When it is safe
    Where the memory of whole sequences suffices, and the larger global batch is meant.
    ## Sources
    - https://github.com/modelscope/ms-swift/pull/10061: sequence_parallel_size without a reader, trained as 1
    - https://www.deepspeed.ai/tutorials/ds-sequence/: Ulysses, and what it exchanges
    """

    name = "sequence-parallel-without-effect"
    explains_failure = False
    title = Text("Sequence parallelism is asked for, and ran as 1", "要求了序列并行，实际以 1 运行")

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """No rank that stepped exchanged heads or keys with others in its whole training."""
        runs = stepped_runs(record)
        if not runs or any(run.asked.sequence_parallel < 2 or _exchanges(rank) for rank, run in runs):
            return
        _, run = runs[0]
        yield self.finding(
            Text(
                "A sequence-parallel size of {size} was asked for, and no rank exchanged heads or keys with another: "
                "each trained on whole sequences{tokens}.",
                "设置的序列并行大小为 {size}，但没有 rank 与其他 rank 交换过注意力头或 key：每个都在完整的序列上训练"
                "{tokens}。",
            ).format(
                size=run.asked.sequence_parallel,
                tokens=Text(" (of {most:,} tokens)", "（{most:,} 个 token）").format(most=run.tokens[1])
                if run.tokens
                else "",
            ),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            cure=(
                Text(
                    "Use a release or a trainer that implements sequence parallelism for this model",
                    "使用为该模型实现了序列并行的版本或 trainer",
                ),
                Text("Or leave the option out and plan for whole sequences", "或去掉该选项，按完整序列规划显存"),
            ),
            ranks=tuple(rank.rank for rank, _ in runs),
        )


def _exchanges(rank: RankRecord) -> bool:
    return any(word in total.operator for total in rank.collectives for word in _EXCHANGES)
