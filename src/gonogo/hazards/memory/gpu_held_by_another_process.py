from gonogo.finding.words import size
from gonogo.hazards.memory._logged_shortage import find_logged_shortage
from gonogo.hazards.rule import FailureLog, Findings, Hazard, translated


class GpuHeldByAnotherProcess(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """An out-of-memory error whose process list shows another process with a large part."""
        short = find_logged_shortage(log)
        if short is None or not short.others or not short.capacity or short.others < 0.4 * short.capacity:
            return
        yield self.log_finding(
            short.evidence,
            translated("{sizes}. Other processes held {others} of it.").format(
                sizes=short.sizes, others=size(short.others)
            ),
        )
