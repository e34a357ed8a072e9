from gonogo.evidence.field import whole_number
from gonogo.evidence.log.context import is_outside_training
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Fix, Hazard, Launch, Pattern, Run, Severity, translated

_CONNECT_TIMEOUT_PATTERN = Pattern(r"\bEI0006\b|Communication_Error_Get_Socket|Getting socket times out")
_HCCL_PATTERN = Pattern(r"(?i)hccl|ascend|\bnpu|昇腾")


class NpuHcclTimeout(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A short connect timeout of HCCL, or its default of 120 s with several nodes."""
        field = launch.variable("HCCL_CONNECT_TIMEOUT")
        seconds = whole_number(field)
        nodes = whole_number(launch.nodes) or 1
        on_npu = any(name.startswith(("ASCEND_", "HCCL_")) for name in launch.variables)
        if not on_npu or (seconds is None and (not field.absent or nodes < 2)):
            return
        if seconds is not None and seconds >= (120 if nodes < 2 else 300):
            return
        fixes: tuple[Fix, ...] = ()
        if launch.source.writable:
            title = translated("set HCCL_CONNECT_TIMEOUT=1200")
            fixes = (self.fix(title, launch.setting_variable("HCCL_CONNECT_TIMEOUT", "1200"), safe=False),)
        yield self.finding(
            self.texts["cause_in_launch"].format(
                seconds=seconds if seconds is not None else 120,
                nodes=nodes,
                default=translated(" (the default)") if seconds is None else "",
            ),
            severity=Severity.WARNING,
            cure=translated("export HCCL_CONNECT_TIMEOUT=1200 on all nodes"),
            spans=field.span() or launch.place.span(),
            fixes=fixes,
            confirm=translated("The ranks reach the first collective at very different times"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """HCCL's codes for a peer that did not connect or did not answer in time."""
        connect, notify = log.find(_CONNECT_TIMEOUT_PATTERN), log.find(self.patterns["notify_timeout"])
        found = connect or notify
        certainty = Certainty.CERTAIN
        if found is None:
            found = log.find(self.patterns["hccl_timeout"])
            if found is None or log.find(_HCCL_PATTERN) is None:
                return
            certainty = Certainty.LIKELY if "507" not in found.match.group(0) else Certainty.POSSIBLE
        if is_outside_training(log):
            certainty = Certainty.POSSIBLE
        yield self.log_finding(
            found,
            self.texts["cause_in_log"].format(
                when=self.texts["connect_timed_out"] if connect else self.texts["completing"]
            ),
            certainty=certainty,
            confirm=translated("All ranks report the timeout, and none reports another error before it"),
        )
