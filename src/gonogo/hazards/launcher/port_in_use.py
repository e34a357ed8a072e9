from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.launch_facts import TORCHRUN
from gonogo.hazards.facts.shell_lines import is_shell_script
from gonogo.hazards.log_rule import log_mentions
from gonogo.hazards.rule import Certainty, Field, Findings, Hazard, Launch, Pattern, Run, Text, translated, whole_number

_ADDRESS_IN_USE_PATTERN = Pattern(r"(?i)address already in use|地址已被占用|地址已在使用")
_OTHER_REASON_PATTERN = Pattern(r"(?i)permission denied|EACCES|EADDRNOTAVAIL|cannot assign requested address")
_PORT_PATTERN = Pattern(
    r"port:? ?`?(\d{2,5})\b|\[?::\]?:(\d{2,5})\b|0\.0\.0\.0:(\d{2,5})\b|:(\d{4,5})\b|\('[\w.:]*', (\d{2,5})\)"
)
_REMOTE_LAUNCHER_PATTERN = Pattern(r"\b(?:ssh|srun|pdsh|mpirun)\b")


class PortInUse(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A second launch at the same port that the script starts while this one still runs."""
        source = launch.source
        port = _rendezvous_port(launch)
        if port is None or not is_shell_script(source) or b"&" not in source.data or launch.in_container:
            return
        if (
            not _runs_in_background(launch, launch.place.end)
            or _REMOTE_LAUNCHER_PATTERN.search(source.text) is not None
        ):
            return
        from gonogo.evidence.launch.reading import read_launches

        for other in read_launches(source):
            if other.place.start <= launch.place.start or other.source is not source:
                continue
            between = source.data[launch.place.end : other.place.start]
            if b"wait" in between or any(word in between.split() for word in (b"else", b"elif", b"esac", b"}", b";;")):
                return
            if _rendezvous_port(other) != port or other.in_container:
                continue
            first, second = _port_field(launch), _port_field(other)
            yield self.finding(
                self.texts["cause_in_launch"].format(first=launch.line, second=other.line, port=port),
                cure=(
                    translated("Give the launch on line {second} another port: {setting}{port}").format(
                        second=other.line,
                        setting="MASTER_PORT=" if other.launcher == "swift" else "--master_port ",
                        port=port + 1 if port < 65535 else 29500,
                    ),
                    *((self.texts["standalone"],) if other.launcher in TORCHRUN else ()),
                ),
                spans=(second.span() or other.place.span(), first.span() or launch.place.span()),
            )
            return

    def in_log(self, log: FailureLog) -> Findings:
        """An error of the store or the launcher that it cannot listen on its port, but not a web server's."""
        found = log.find(self.patterns["in_use"])
        certainty = Certainty.CERTAIN
        if found is not None and _OTHER_REASON_PATTERN.search(found.text):
            return
        if found is None:
            found = log.find(_ADDRESS_IN_USE_PATTERN)
            if found is None:
                return
            certainty = Certainty.LIKELY if log.find(self.patterns["distributed"]) else Certainty.POSSIBLE
        elif log.find(_ADDRESS_IN_USE_PATTERN) is None and not log.has("another process") and not log.has("EADDRINUSE"):
            certainty = Certainty.LIKELY
        elif not log_mentions(log, self.patterns["launch"]):
            certainty = Certainty.POSSIBLE  # an engine that picks its own port fails with the same message
        if log.find(self.patterns["server"]) or is_outside_training(log):
            certainty = Certainty.POSSIBLE
        port = next(
            (port for line in log.find_all(_ADDRESS_IN_USE_PATTERN) if (port := _find_port(line.text))), None
        ) or _find_port(found.text)
        yield self.log_finding(
            found,
            self.texts["rendezvous_port_cause"].format(
                port=Text(f"Port {port}", f"端口 {port} ")
                if port
                else translated("The rendezvous port (29500 unless another is set)")
            )
            if certainty is not Certainty.POSSIBLE
            else self.texts["unknown_port_cause"].format(
                port=Text(f"Port {port}", f"端口 {port} ") if port else translated("A port")
            ),
            cure=(
                *((self.texts["one_launcher"],) if log.setup.mentions(r"\bsrun\b|SLURM") else ()),
                self.texts["other_port"],
                translated("Or end the stale job that holds it: lsof -i :PORT (or ss -ltnp) names the process"),
            ),
            certainty=certainty,
        )


def _find_port(text: str) -> str | None:
    found = _PORT_PATTERN.search(text)
    return next((group for group in found.groups() if group), None) if found else None


def _port_field(launch: Launch) -> Field:
    if launch.launcher in (*TORCHRUN, "deepspeed"):
        return launch.launcher_options.get("master_port")
    return launch.variable("MASTER_PORT")


def _rendezvous_port(launch: Launch) -> int | None:
    """The port of the launch's rendezvous; None if it picks a free one or if that is unknown."""
    options = launch.launcher_options
    if launch.launcher in TORCHRUN:
        if any(name in options for name in ("standalone", "rdzv_endpoint", "rdzv_backend")):
            return None
    elif launch.launcher == "swift":
        if launch.variable("NPROC_PER_NODE").absent and launch.variable("NNODES").absent:
            return None
    elif launch.launcher != "deepspeed":
        return None
    if not options.complete or (whole_number(launch.processes_per_node) or 2) < 2:
        return None
    field = _port_field(launch)
    return 29500 if field.absent else whole_number(field)


def _runs_in_background(launch: Launch, end: int) -> bool:
    """Whether the shell continues without waiting for the command."""
    tail = launch.source.data[end:].partition(b"\n")[0].partition(b"#")[0].strip()
    return tail.endswith(b"&") and not tail.endswith(b"&&")
