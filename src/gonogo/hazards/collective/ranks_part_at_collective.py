from collections.abc import Iterator

from gonogo.evidence.dumps.collective_mismatch import find_mismatch
from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.hazards.collective import _recorded as recorded
from gonogo.hazards.facts.divergence_fixes import (
    fix_dict_order,
    fix_divergent_branch,
    fix_new_group_membership,
    fix_recv_before_send,
)
from gonogo.hazards.facts.leaf_modules import fix_with_leaf_modules
from gonogo.hazards.rule import Certainty, FailureLog, Finding, Findings, Fix, Hazard, RehearsalRecord, Run


class RanksPartAtCollective(Hazard):
    """The ranks call different collectives at the same point, for a reason that no other hazard explains."""

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A divergence that no more specific hazard explains."""
        divergence = rank_divergence(record)
        if divergence is None:
            return
        side = divergence.most_informative_side()
        cure = (
            (self.texts["zero_3_cure"], self.texts["same_branch_cure"])
            if divergence.gathers_weights and divergence.zero_stage == 3
            else (self.texts["same_branch_cure"],)
        )
        if not divergence.conditions_of_side_alone(side):
            cure = (*cure, self.texts["same_order_cure"])
        yield self.divergence_finding(divergence, side, cure=cure)

    def in_log(self, log: FailureLog) -> Findings:
        """Flight Recorder dumps of ranks that made different calls with the same number."""
        unlike = find_mismatch(log.dumps)
        if unlike is not None and unlike.kind == "other-call":
            yield self.finding(
                recorded.describe_mismatch(unlike),
                certainty=Certainty.LIKELY,
                cure=(self.texts["same_branch_cure"], self.texts["same_order_cure"]),
                spans=recorded.span_in_waiting_dump(unlike),
                ranks=(*unlike.waiting, *unlike.others),
                confirm=recorded.CHECK_MISSING_RANK_LOGS,
            )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Make all ranks take the same path, in the same order."""
        divergence = rank_divergence(record)
        if divergence is not None:
            yield from fix_divergent_branch(divergence, run)
            yield from fix_with_leaf_modules(divergence, run)
            yield from fix_dict_order(divergence, run)
            yield from fix_recv_before_send(divergence, run)
            yield from fix_new_group_membership(divergence, run)
