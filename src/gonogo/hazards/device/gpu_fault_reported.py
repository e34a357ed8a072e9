from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Pattern, translated

_XID_PATTERN = Pattern(r"NVRM: Xid \((?P<gpu>[^)]{1,60})\): (?P<number>\d{1,3})\b")
_HARDWARE_XIDS = {
    48: translated("a memory error that could not be corrected (double-bit ECC)"),
    54: translated("its auxiliary power is disconnected or insufficient"),
    61: translated("its microcontroller stopped"),
    62: translated("its microcontroller stopped"),
    63: translated("memory rows were remapped or pages retired"),
    64: translated("memory rows could not be remapped"),
    74: translated("an NVLink error: the link, the bridge or a peer GPU"),
    79: translated("it has fallen off the bus"),
    92: translated("a very large number of memory errors were corrected"),
    94: translated("a memory error that was contained to one program"),
    95: translated("a memory error that could not be contained"),
    110: translated("a security fault in its firmware"),
    119: translated("its firmware (GSP) does not respond"),
    120: translated("its firmware (GSP) failed"),
    140: translated("a memory error that could not be corrected"),
    145: translated("an NVLink error"),
    149: translated("an NVLink error"),
}
_PROGRAM_XIDS = {
    13: translated("a kernel's fault, such as an index out of range"),
    31: translated("a kernel read or wrote memory that does not belong to it"),
    43: translated("a program was stopped on the GPU after it caused a fault"),
    45: translated("a program's work was cleaned up after it failed or was killed"),
}


class GpuFaultReported(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """The kernel's Xid number, CUDA's errors for such a fault, and the counters of ``nvidia-smi -q``."""
        fault = log.find(self.patterns["fatal_gpu_error"])
        for found in log.find_all(_XID_PATTERN):
            what = _HARDWARE_XIDS.get(int(found.match.group("number")))
            if what is None:
                continue
            yield self.log_finding(
                found,
                translated("Xid {number} on the GPU at {gpu}: {what}.").format(
                    number=found.match.group("number"), gpu=found.match.group("gpu"), what=what
                ),
                certainty=Certainty.LIKELY,
                extra_evidence=(fault,) if fault is not None else (),
                confirm=translated("The line's timestamp matches the failure, and the GPU belongs to this run"),
            )
            return
        if fault is not None:
            yield self.log_finding(
                fault,
                certainty=Certainty.LIKELY,
                confirm=translated("dmesg on that machine shows an Xid from the same time"),
            )
            return
        yield from self._reported_fault_findings(log)

    def _reported_fault_findings(self, log: FailureLog) -> Findings:
        counted = log.find(self.patterns["nvidia_smi_query"]) if log.has("NVSMI LOG") else None
        for found in log.find_all(_XID_PATTERN) if counted is None else ():
            what = _PROGRAM_XIDS.get(int(found.match.group("number")))
            if what is not None:
                yield self.log_finding(
                    found,
                    translated("Xid {number}: {what}. This is usually the program's fault, not the GPU's.").format(
                        number=found.match.group("number"), what=what
                    ),
                    cure=translated("Look for the error of the rank that ran there; if there is none, test the GPU"),
                    certainty=Certainty.POSSIBLE,
                    confirm=translated("The same fault on another GPU shows that the program is the cause"),
                )
                return
        if counted is not None:
            yield self.log_finding(
                counted,
                translated("nvidia-smi reports GPU memory faults, or a pending reset: {what}: {value}.").format(
                    what=counted.match.group("what"), value=counted.match.group("value")
                ),
                certainty=Certainty.POSSIBLE,
                confirm=translated("The volatile error counts rise during the run"),
            )
