from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.collective._store_barrier import store_barriers_in_log
from gonogo.hazards.rule import Certainty, Findings, Hazard, translated


class ProcessGroupJoinedByTooMany(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """A store barrier that counts more processes than the world size."""
        barrier = next((one for one in store_barriers_in_log(log) if one.joined > one.world), None)
        if barrier is None:
            return
        yield self.log_finding(
            barrier.evidence,
            translated(
                "{joined} processes have registered for a group of {world}. It waits for exactly {world}, "
                "and the count is already past that."
            ).format(joined=barrier.joined, world=barrier.world),
            certainty=Certainty.LIKELY,
            cure=(
                translated(
                    "Start one launcher per node, and let either it or the script start the ranks, not both "
                    "(srun's tasks and mp.spawn, torchrun on every task)"
                ),
                translated(
                    "Remove the file of init_method='file://…' before each run, or use env://; use a different "
                    "--master_port for another run"
                ),
                translated("If workers were restarted, find out why the first one died"),
            ),
            confirm=translated(
                "ps shows more processes of the program than the world size, or the file of an earlier run still exists"
            ),
        )
