from gonogo.hazards.rule import FailureLog, Findings, Hazard, Pattern, translated

_CANCELLED_PATTERN = Pattern(
    r"slurmstepd: error: .*CANCELLED AT \S+ DUE TO (?P<why>TIME LIMIT|PREEMPTION|NODE FAILURE)"
)
_CAUSES_AND_CURES = {
    "TIME LIMIT": (
        translated("its time limit was reached"),
        translated(
            "Request more time (#SBATCH --time), or save checkpoints in time and resume from them: "
            "--signal=B:USR1@300 and a handler that saves and resubmits"
        ),
    ),
    "PREEMPTION": (
        translated("a higher-priority job preempted it"),
        translated(
            "Submit it with --requeue, and let it resume from its last checkpoint; or use a queue without preemption"
        ),
    ),
    "NODE FAILURE": (
        translated("one of its nodes failed or did not respond"),
        translated(
            "Resubmit it without that node (--exclude), from the last checkpoint; tell the cluster's administrators"
        ),
    ),
}
_STATE_SYNONYMS = {
    "TIMEOUT": "TIME LIMIT",
    "DEADLINE": "TIME LIMIT",
    "PREEMPTED": "PREEMPTION",
    "NODE_FAIL": "NODE FAILURE",
    "BOOT_FAIL": "NODE FAILURE",
}


class JobEndedByScheduler(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """Slurm's own message, or the job's state as ``sacct`` prints it."""
        found = log.find(_CANCELLED_PATTERN)
        if found is None and log.has("JobID"):
            found = log.find(self.patterns["sacct_state"])
        if found is None:
            return
        why, cure = _CAUSES_AND_CURES[_STATE_SYNONYMS.get(found.match.group("why"), found.match.group("why"))]
        yield self.log_finding(found, translated("Slurm ended the job: {why}.").format(why=why), cure=cure)
