from collections.abc import Iterator

from gonogo.evidence.dumps.collective_mismatch import find_mismatch
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.hazards.collective import _recorded as recorded
from gonogo.hazards.collective._same_sizes import all_gradient_fixes, same_dtype_fixes
from gonogo.hazards.facts.divergence_fixes import fix_dict_order
from gonogo.hazards.rule import Certainty, Finding, Findings, Fix, Hazard, RehearsalRecord, Run


class CollectiveSizesDiffer(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """The same operator in one group, with different sizes, dtypes or reductions."""
        divergence = rank_divergence(record)
        if divergence is None:
            return
        if divergence.divergence.kind == "other-size":
            yield self.divergence_finding(divergence, divergence.most_informative_side(), cure=self.cures)

    def in_log(self, log: FailureLog) -> Findings:
        """Flight Recorder dumps whose calls with the same number have different sizes or dtypes."""
        unlike = find_mismatch(log.dumps)
        if unlike is not None and unlike.kind == "other-size":
            yield self.finding(
                recorded.describe_mismatch(unlike),
                certainty=Certainty.LIKELY,
                spans=recorded.span_in_waiting_dump(unlike),
                ranks=(*unlike.waiting, *unlike.others),
                confirm=recorded.CHECK_MISSING_RANK_LOGS,
            )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Use the same order, dtype or gradients on every rank."""
        divergence = rank_divergence(record)
        if divergence is not None:
            yield from fix_dict_order(divergence, run)
            yield from same_dtype_fixes(divergence, run)
            yield from all_gradient_fixes(divergence, run)
