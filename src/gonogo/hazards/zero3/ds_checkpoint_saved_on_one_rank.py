from collections.abc import Iterator

from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.hazards.facts.all_ranks import outside_of_rank_test
from gonogo.hazards.facts.rank_tests import lone_statement, on_one_rank
from gonogo.hazards.facts.zero_files import is_engine, is_optional, text_of
from gonogo.hazards.rule import Certainty, Finding, Findings, Fix, Hazard, RehearsalRecord, Run, Script, Severity, Text

_ON_ALL = Text(
    "Take the call out of the test: all ranks make it, and rank 0 alone does what is left, such as printing",
    "把调用移出该条件：所有 rank 都执行它，只让 rank 0 做其余的事（如打印）",
)


_REHEARSED = Text(
    "save_checkpoint is a call of all ranks: each writes its own part.",
    "save_checkpoint 需要所有 rank 一起调用：每个 rank 写自己的分片。",
)


class DsCheckpointSavedOnOneRank(Hazard):
    """`engine.save_checkpoint` stands under `if rank == 0`.
    ## What happens
    The run stands still at the first checkpoint: rank 0 waits in a barrier, and the others go on to the next step
    and wait there, until the collective times out.
    ## Why
    Saving is collective in DeepSpeed: each rank writes its part of the optimizer (and under ZeRO-3 of the weights),
    and all of them meet in a barrier before and after. DDP scripts save on rank 0 only, and the habit is carried
    over. `accelerator.save_state` saves through the engine, and is collective too.
    ## Example
    ```python
    if engine.global_rank == 0:
        engine.save_checkpoint("out")    # wrong: waits there for the other ranks

    engine.save_checkpoint("out")        # right: all ranks call it
    ```
    ## Cure
    Call it on all ranks, outside of the test.
    ## When it is safe
    A run of one process; `torch.save` of things that are not the engine's.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/2993: under a test of the main process the run hangs
    - https://github.com/deepspeedai/DeepSpeed/pull/801: the documentation: all processes must call it
    - https://github.com/bghira/SimpleTuner/issues/262: the same with accelerator.save_state
    """

    name = "ds-checkpoint-saved-on-one-rank"
    title = Text(
        "The engine saves its checkpoint on one rank only, and waits there for the others",
        "只在一个 rank 上保存 DeepSpeed checkpoint，它会一直等待其他 rank",
    )
    yields_to = ("collective-sizes-differ", "zero3-generate-without-synced-gpus")

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that diverge where one saved a checkpoint."""
        divergence = rank_divergence(record)
        if divergence is None or divergence.rank_test is None:
            return
        side, _ = divergence.rank_test
        if "save_checkpoint" in side.functions:
            yield self.divergence_finding(divergence, side, cure=_ON_ALL, because=_REHEARSED)

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """What one rank does, all do."""
        divergence = rank_divergence(record)
        if divergence is not None:
            yield from outside_of_rank_test(divergence, run)

    def in_script(self, script: Script, run: Run) -> Findings:
        """``save_checkpoint`` of an engine, or ``save_state`` of an accelerator, that one rank calls."""
        data = script.source.data
        if (
            run.deepspeed_on is False
            or run.world_size == 1
            or (b".save_checkpoint(" not in data and b".save_state(" not in data)
        ):
            return
        for call in script.calls("*.save_checkpoint", "accelerate.Accelerator.save_state"):
            if call.method == "save_checkpoint":
                if not is_engine(script, call.receiver):
                    continue
            elif not run.deepspeed_on:
                continue
            test = on_one_rank(script, call.node)
            if test is None:
                continue
            lone = lone_statement(script, call.node)
            edit = script.replacing(lone, script.place(call.node).text) if lone is not None else None
            yield self.finding(
                Text(
                    "`{code}` is called by one rank only, and waits there for all ranks to save their parts: the run "
                    "hangs at its first checkpoint.",
                    "`{code}` 只由一个 rank 调用，它会等待所有 rank 保存各自的分片：运行会在第一个 checkpoint 处挂起。",
                ).format(code=text_of(script, call.node.func) + "(…)"),
                certainty=Certainty.LIKELY
                if run.zero_stage == 0 or is_optional(script, call.node)
                else Certainty.CERTAIN,
                severity=Severity.ERROR,
                cure=_ON_ALL,
                spans=(
                    call.place.span(),
                    script.place(test).span(Text("only one rank gets here", "只有一个 rank 会到这里")),
                ),
                fixes=self.fix(Text("Save on all ranks", "在所有 rank 上保存"), edit, safe=False) if edit else None,
            )
