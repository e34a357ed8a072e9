from collections.abc import Iterator

from gonogo.evidence.dumps.collective_mismatch import find_mismatch
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.hazards.collective import _recorded as recorded
from gonogo.hazards.facts.all_ranks import groups_of_all, in_same_order, same_way, sent_and_received_at_once
from gonogo.hazards.facts.leaf_modules import made_leaves
from gonogo.hazards.rule import Certainty, Finding, Findings, Fix, Hazard, RehearsalRecord, Run, translated

_ZERO_3 = translated(
    "Under ZeRO-3 every rank has to run the same modules in the same order: run the module on all ranks, and "
    "multiply its result by zero where it isn't wanted; or use ZeRO-2"
)
_SAME_WAY = translated(
    "Make all ranks take the same branch: decide on a value that they share (all_reduce or broadcast it before "
    "the branch), and move the call out of code that only some of them run"
)
_ORDER = translated("Make the calls in the same order on every rank, e.g. over sorted names")


class RanksPartAtCollective(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A divergence that no narrower hazard explains."""
        divergence = rank_divergence(record)
        if divergence is None:
            return
        telling = divergence.telling_side()
        cure = (_ZERO_3, _SAME_WAY) if divergence.gathers and divergence.zero_stage == 3 else (_SAME_WAY,)
        if not divergence.own_guards(telling):
            cure = (*cure, _ORDER)
        yield self.divergence_finding(divergence, telling, cure=cure)

    def in_log(self, log: FailureLog) -> Findings:
        """Flight Recorder dumps of ranks that made other calls under one number."""
        unlike = find_mismatch(log.dumps)
        if unlike is not None and unlike.kind == "other-call":
            yield self.finding(
                recorded.describe_mismatch(unlike),
                certainty=Certainty.LIKELY,
                cure=(_SAME_WAY, _ORDER),
                spans=recorded.span(unlike),
                ranks=(*unlike.waiting, *unlike.others),
                confirm=recorded.LOOK_AT_LOGS,
            )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """The ranks go the same way, in the same order."""
        divergence = rank_divergence(record)
        if divergence is not None:
            yield from same_way(divergence, run)
            yield from made_leaves(divergence, run)
            yield from in_same_order(divergence, run)
            yield from sent_and_received_at_once(divergence, run)
            yield from groups_of_all(divergence, run)
