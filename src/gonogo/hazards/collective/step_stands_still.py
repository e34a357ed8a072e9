import os

from gonogo.evidence.guarded.divergence import find_divergence
from gonogo.evidence.guarded.ends import ranks_without_records
from gonogo.evidence.guarded.standstill import find_hang
from gonogo.evidence.guarded.whereabouts import activity_in_stack, innermost_user_frame
from gonogo.evidence.rehearsal.failures import frame_spans
from gonogo.finding.ranks import capitalize_text, ranks_text
from gonogo.hazards.rule import Findings, GuardedRun, Hazard, Severity, Text, translated

_TRANSPORT_CURES = (
    translated(
        "Test the links between the GPUs: NCCL_P2P_DISABLE=1, then NCCL_IB_DISABLE=1, then NCCL_SOCKET_IFNAME "
        "set to the right interface; NCCL_DEBUG=INFO shows the path that NCCL chose"
    ),
    translated("Run nccl-tests' all_reduce_perf on the same GPUs and nodes: it should hang as well"),
)


class StepStandsStill(Hazard):
    """A step makes no progress, though no rank waits for another one that is late."""

    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """A hang in which no rank waits for another."""
        still = find_hang(run)
        if (
            still is None
            or still.late
            or still.silent
            or ranks_without_records(run)
            or find_divergence(run) is not None
        ):
            return
        ranks = tuple(sorted(still.stalls))
        frames = still.seen[ranks[0]].frames if ranks[0] in still.seen else ()
        at = innermost_user_frame(still.call.frames) if still.call is not None else innermost_user_frame(frames)
        known = activity_in_stack(frames)
        where = Text("{place} in {function}", "{place}（函数 {function}）").format(
            place=f"{os.path.basename(at.path)}:{at.line}" if at is not None else "?",
            function=at.function if at is not None else "?",
        )
        if still.call is not None and run.world_size > 1:
            cause = self.texts["collective_unfinished_cause"].format(
                operator=still.call.operator, index=still.call.index + 1, where=where, seconds=still.seconds
            )
        else:
            cause = self.texts["rank_stands_cause"].format(
                ranks=capitalize_text(ranks_text(ranks)),
                have="has" if len(ranks) == 1 else "have",
                where=where,
                seconds=still.seconds,
                doing=Text(f": {known.doing.en}", f"：{known.doing.zh}") if known is not None else "",
            )
        look = translated("Look first at the line of code that is named here")
        yield self.finding(
            cause,
            severity=Severity.WARNING if run.exit_status in (None, 0) else Severity.ERROR,
            cure=_TRANSPORT_CURES if still.call is not None else (known.cure if known and known.cure else look,),
            spans=frame_spans((at, translated("the ranks are stuck here"))),
            ranks=ranks,
        )
