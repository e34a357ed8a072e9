from gonogo.evidence.log.exit_summary import process_exits
from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.hazards.rule import (
    Certainty,
    Environment,
    Findings,
    Fix,
    Hazard,
    Launch,
    Pattern,
    Run,
    Severity,
    translated,
)

_STUB_LIBRARY_PATTERN = Pattern(
    r"You should always run with libnvidia-ml\.so|is a stub library|Linked to libnvidia-ml library at wrong path"
    r"|libnvidia-ml\.so in GDK package|CUDA_ERROR_STUB_LIBRARY|cudaErrorStubLibrary|lib64/stubs/lib(?:cuda|nvidia-ml)"
)
_STUBS_IN_SETUP_PATTERN = r"LD_LIBRARY_PATH=\S*stubs"
_SEGFAULT_PATTERN = Pattern(r"Segmentation fault|SIGSEGV|return code = -11|exitcode ?: -11")
_INITIALIZATION_PATTERN = Pattern(
    r"init_distributed|Initializing TorchBackend|init_process_group|NCCL version|Bootstrap :"
)


class SegfaultCudaStubLibrary(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A folder of stubs in LD_LIBRARY_PATH, as the script sets it."""
        field = launch.variables.get("LD_LIBRARY_PATH")
        place = field.place if field is not None else None
        if field is None or place is None or "stubs" not in place.text:
            return
        entry = _STUBS_ENTRY_PATTERN.search(place.text)
        if entry is None:
            return
        start, end = entry.start(1), entry.end(1)
        first, last = (start, end + 1) if place.text[end : end + 1] == ":" else (start - 1, end)
        fixes: tuple[Fix, ...] = ()
        if place.source.writable and place.text[first : first + 1] in (":", entry.group(1)[:1]):
            before = len(place.text[:first].encode())
            width = len(place.text[first:last].encode())
            word = place.source.place(place.start + before, place.start + before + width)
            fixes = (self.fix(translated("remove the folder"), word.edit(""), safe=False),)
        yield self.finding(
            self.texts["cause_in_launch"].format(entry=entry.group(1)),
            severity=Severity.WARNING,
            cure=translated("Take {entry} out of LD_LIBRARY_PATH (for the linker it belongs in LIBRARY_PATH)").format(
                entry=entry.group(1)
            ),
            spans=place.span(),
            fixes=fixes,
        )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A stubs folder in the machine's own LD_LIBRARY_PATH, if the launch does not set another."""
        if run.launch is not None and not run.launch.variable("LD_LIBRARY_PATH").absent:
            return
        value = environment.variable("LD_LIBRARY_PATH").string or ""
        entry = next((one for one in value.split(":") if one.rstrip("/").endswith("/stubs")), None)
        if entry is None:
            return
        yield self.finding(
            self.texts["cause_in_environment"].format(entry=entry),
            severity=Severity.WARNING,
            cure=self.texts["cure"].format(entry=entry),
            spans=(run.launch.place.span() if run.launch is not None else None),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """NVML's warning about the stub; less certain: a segmentation fault when the backend starts."""
        evidence, certainty = _find_evidence(log)
        if evidence is None:
            return
        yield self.log_finding(
            evidence,
            self.texts["stub_cause"] if certainty is not Certainty.POSSIBLE else self.texts["crash_cause"],
            certainty=certainty,
            confirm=self.texts["confirm"],
        )


def _find_evidence(log: FailureLog) -> tuple[LineMatch | None, Certainty]:
    stub = log.find(_STUB_LIBRARY_PATTERN)
    crashed = log.find(_SEGFAULT_PATTERN) or next((found for found, code in process_exits(log) if code == -11), None)
    if stub is not None:
        return stub, Certainty.CERTAIN if crashed else Certainty.LIKELY
    if crashed is None:
        return None, Certainty.POSSIBLE
    if log.setup.mentions(_STUBS_IN_SETUP_PATTERN):
        return crashed, Certainty.LIKELY
    last = [line.text for line in log.lines_before(crashed.line, 12)]
    if not log.errors and any(_INITIALIZATION_PATTERN.search(text) for text in last):
        return crashed, Certainty.POSSIBLE
    return None, Certainty.POSSIBLE


_STUBS_ENTRY_PATTERN = Pattern(r"[:=\"']([^:=\"'\s]*/stubs/?)(?:[:\"'\s]|$)")
