from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.shared_memory import SHARED_MEMORY_FIX, find_small_shared_memory
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Pattern, Run, Severity, translated, whole_number

_SHM_MESSAGE_PATTERN = Pattern(r"(?i)\bnc[cl]l\b.{0,80}(?:no space left on device|共享内存不足)")
_OTHER_REASON_PATTERN = Pattern(
    r"invalid argument|Permission denied|No such file|Operation not permitted|Too many open files"
)


class NcclShmNoSpace(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """docker run without --shm-size and --ipc=host, with several ranks and without data loader workers."""
        small = find_small_shared_memory(launch)
        count = whole_number(launch.processes_per_node)
        if (
            small is None
            or count is None
            or count < 2
            or (whole_number(run.arguments.get("dataloader_num_workers")) or 0)
        ):
            return
        yield self.finding(
            translated("{what}, but NCCL's buffers between {count} ranks need more.").format(
                what=small.text, count=count
            ),
            severity=Severity.WARNING,
            cure=small.cure,
            spans=small.place.span(),
            fixes=self.fix(SHARED_MEMORY_FIX, *small.edits, safe=False) if small.edits else (),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """NCCL's warning that a segment in /dev/shm could not be made or extended."""
        found = log.find(self.patterns["no_space"])
        certainty = Certainty.CERTAIN
        if found is None and (found := log.find(_SHM_MESSAGE_PATTERN)):
            certainty = Certainty.LIKELY
        elif found is None:
            found = log.find(self.patterns["shm_segment"])
            if found is None:
                return
            around = (*log.lines_before(found.line, 3), found.line)
            other = any(_OTHER_REASON_PATTERN.search(line.text) for line in around)
            certainty = Certainty.POSSIBLE if other else Certainty.LIKELY
        if is_outside_training(log):
            certainty = Certainty.POSSIBLE
        yield self.log_finding(
            found, certainty=certainty, confirm=translated("df -h /dev/shm shows a small or a full file system")
        )
