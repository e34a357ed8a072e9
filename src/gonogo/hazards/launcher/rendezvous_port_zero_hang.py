from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.progress import first_training_line
from gonogo.evidence.log.stall import STALL_WORDS, find_stall
from gonogo.hazards.facts.launch_facts import accelerate_setting, accelerate_uses_deepspeed
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Launch, Pattern, Run, translated, whole_number

_DEEPSPEED_INIT_PATTERN = Pattern(r"Initializing TorchBackend in DeepSpeed|\[comm\.py:\d+:init_distributed\]")
_RENDEZVOUS_PATTERN = Pattern(
    r"Initializing TorchBackend|init_process_group|cdb=None|Distributed backend already initialized"
)
_PORT_ZERO_SETUP_PATTERN = (
    r"main_process_port[\"']?\s*[:=]?\s*[\"']?0(?:[^\w.]|$)|--master[-_]port[= ]+0\b|\bMASTER_PORT=[\"']?0\b"
)


class RendezvousPortZeroHang(Hazard):
    log_words = (*STALL_WORDS, "main_process_port", "master_port", "MASTER_PORT")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Port 0 where each process would pick its own: the deepspeed launcher, or accelerate on several machines."""
        options = launch.launcher_options
        if launch.launcher == "deepspeed":
            field = options.get("master_port")
            certainty = Certainty.LIKELY
        elif launch.launcher == "accelerate":
            field = accelerate_setting(launch, run, "main_process_port")
            several = (whole_number(accelerate_setting(launch, run, "num_machines")) or 1) > 1
            if not several and accelerate_uses_deepspeed(launch, run) is not True:
                return
            if not several and run.environment.within("accelerate", ">=1.0") is True:
                return  # it picks a free port itself and passes it to all processes
            certainty = Certainty.LIKELY if several else Certainty.POSSIBLE
        else:
            return
        if whole_number(field) != 0 or (whole_number(launch.world_size) or 2) < 2:
            return
        yield self.finding(
            translated("The port is 0, meaning any free port: rank 0 listens on a port that the others don't know."),
            certainty=certainty,
            cure=translated("Set a fixed free port: {setting} 29501").format(
                setting="--master_port"
                if launch.launcher == "deepspeed"
                else "--main_process_port"
                if "main_process_port" in options
                else "main_process_port:"
            ),
            spans=field.span() or launch.place.span(),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """Port 0 in the log or the setup, with a stall or a log that ends at the backend's initialization."""
        stall = find_stall(log)
        ends = log.find(_DEEPSPEED_INIT_PATTERN)
        port = log.find(self.patterns["port_zero"])
        port_zero = port is not None or log.setup.mentions(_PORT_ZERO_SETUP_PATTERN)
        if stall is not None and port_zero:
            certainty = Certainty.LIKELY if first_training_line(log) is None else Certainty.POSSIBLE
            yield self._build_finding(
                port_zero, stall.cap_certainty(certainty), stall.evidence, *([port] if port else [])
            )
            return
        if stall is not None and not stall.time_outs and (beside := _nearby_rendezvous_line(log, stall.line)):
            yield self._build_finding(port_zero, Certainty.POSSIBLE, stall.evidence, beside)
            return
        if ends is None or log.errors:
            return
        if not port_zero:
            last = [*log.find_all(_DEEPSPEED_INIT_PATTERN)][-1]
            if not any(line.text.strip() for line in log.lines_after(last.line, 6)):
                yield self._build_finding(port_zero, Certainty.POSSIBLE, last)
            return
        at_its_end = len(log.lines_after(ends.line, 40)) < 40
        yield self._build_finding(port_zero, Certainty.LIKELY if at_its_end else Certainty.POSSIBLE, port or ends, ends)

    def _build_finding(self, port_zero: bool, certainty: Certainty, *evidence: LineMatch | LogLine) -> Finding:
        first, *also = evidence
        return self.log_finding(
            first,
            self.texts["port_zero_cause"] if port_zero else self.texts["hang_cause"],
            certainty=certainty,
            extra_evidence=tuple(one for one in also if one != first),
            confirm=translated("With a fixed port the run continues")
            if port_zero
            else translated("The launch command or the Accelerate config has main_process_port: 0"),
        )


def _nearby_rendezvous_line(log: FailureLog, line: LogLine) -> LogLine | None:
    """A line about the rendezvous close to the given one."""
    around = (*log.lines_before(line, 8), line, *log.lines_after(line, 4))
    return next((one for one in reversed(around) if _RENDEZVOUS_PATTERN.search(one.text)), None)
