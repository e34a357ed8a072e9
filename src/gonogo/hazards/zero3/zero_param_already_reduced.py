from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, LineMatch, LoggedError, Run, Script
from gonogo.hazards.zero3._checkpointing import double_recomputation_findings
from gonogo.hazards.zero3._zero3_in_log import find_cut_traceback, find_error_or_line


class ZeroParamAlreadyReduced(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """The model run twice for one loss, under reentrant checkpointing and ZeRO-2."""
        if run.zero_stage == 2:
            yield from double_recomputation_findings(
                self, script, run, "The parameter … has already been reduced", self.cures
            )

    def in_log(self, log: FailureLog) -> Findings:
        """DeepSpeed's assertion in stage_1_and_2.py."""
        evidence: LoggedError | LineMatch | None = find_error_or_line(
            log, self.patterns["already_reduced"], "AssertionError"
        )
        certainty = Certainty.CERTAIN
        if evidence is None:
            evidence = find_cut_traceback(
                log, "zero/stage_1_and_2.py", "reduce_independent_p_g_buckets_and_remove_grads"
            )
            certainty = Certainty.LIKELY
        if evidence is not None:
            yield self.log_finding(evidence, certainty=certainty)
