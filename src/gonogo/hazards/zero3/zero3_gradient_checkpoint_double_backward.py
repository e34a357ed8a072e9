from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, LineMatch, LoggedError, Pattern, Run, Script
from gonogo.hazards.zero3._checkpointing import double_recomputation_findings
from gonogo.hazards.zero3._zero3_in_log import find_cut_traceback

_IPG_BUCKET_PATTERN = Pattern(r"params_in_ipg_bucket")
_BACKWARD_CALL_PATTERN = Pattern(r"optimizer\.backward\(loss")
_GRADIENT_REDUCTION_FUNCTIONS = ("reduce_and_partition_ipg_grads", "reduce_independent_p_g_buckets")


class Zero3GradientCheckpointDoubleBackward(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """The model run twice for one loss, under reentrant checkpointing and ZeRO-3."""
        if run.zero_stage == 3:
            yield from double_recomputation_findings(
                self, script, run, "assert len(set(p.ds_id for p in params_in_ipg_bucket))", self.cures
            )

    def in_log(self, log: FailureLog) -> Findings:
        """The bare assertion of stage3.py's gradient bucket."""
        evidence: LoggedError | LineMatch | None = None
        certainty = Certainty.CERTAIN
        for error in log.errors_of("AssertionError"):
            last = error.innermost
            if (
                last
                and "stage3.py" in last.path
                and (_IPG_BUCKET_PATTERN.search(last.code) or self.patterns["ipg_bucket_assertion"].search(last.code))
            ):
                evidence = error
            elif (
                last and "stage3.py" in last.path and not error.message and error.passes(*_GRADIENT_REDUCTION_FUNCTIONS)
            ):
                evidence, certainty = error, Certainty.LIKELY
        if evidence is None and (cut := find_cut_traceback(log, "zero/stage3.py", code=_IPG_BUCKET_PATTERN)):
            evidence, certainty = cut, Certainty.LIKELY
        if evidence is None and (
            evidence := log.find(self.patterns["ipg_bucket_assertion"]) or log.find(_IPG_BUCKET_PATTERN)
        ):
            certainty = Certainty.LIKELY if log.has("AssertionError") else Certainty.POSSIBLE
        bare = any(not (error.frames or error.message) for error in log.errors_of("AssertionError"))
        if (
            evidence is None
            and bare
            and (cut := find_cut_traceback(log, "deepspeed/runtime/engine.py", code=_BACKWARD_CALL_PATTERN))
        ):
            evidence, certainty = cut, Certainty.POSSIBLE  # the last line may be one rank's, and the frames another's
        if evidence is None:
            return
        yield self.log_finding(evidence, certainty=certainty, confirm=self.texts["confirm"])
