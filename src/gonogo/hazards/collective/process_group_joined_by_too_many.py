from gonogo.hazards.collective._store_barrier import store_barrier_messages
from gonogo.hazards.rule import FailureLog, Findings, Hazard


class ProcessGroupJoinedByTooMany(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """A store barrier that counts more processes than the world size."""
        barrier = next((one for one in store_barrier_messages(log) if one.joined > one.world), None)
        if barrier is None:
            return
        yield self.log_finding(barrier.evidence, self.texts["cause"].format(joined=barrier.joined, world=barrier.world))
