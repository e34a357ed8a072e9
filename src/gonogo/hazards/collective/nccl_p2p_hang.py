from gonogo.evidence.field import whole_number
from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.progress import first_step_line
from gonogo.evidence.log.stall import MAX_EARLY_SEQUENCE_NUMBER, STALL_WORDS, Stall, find_in_log_or_setup, find_stall
from gonogo.hazards.rule import Certainty, Findings, Fix, Hazard, Launch, Pattern, Run, Severity, translated

_CONSUMER_GPU_PATTERN = Pattern(r"(?i)(?:rtx[ _-]?)?40[6-9]0(?:[ _-]?ti|[ _-]?super|[ _-]?d)?\b")
_CONSUMER_GPU_IN_LOG = (
    r"(?i)\b(?:RTX|GeForce)[ -]?(?:GTX |RTX )?(?:A\d{4}|\d{4})|RTX PRO \d{4}|\bL40S?\b"
    r"|\b[345]0[6-9]0(?:s|ti|d| ?gpus?| ?显卡| ?卡| cards?)\b"
)
_PEER_TO_PEER = r"NCCL_P2P_DISABLE|NCCL_P2P_LEVEL|via P2P/(?:IPC|CUMEM|direct)|\bp2p\b|P2P"
_INIT_COMPLETE_PATTERN = Pattern(r"NCCL INFO .*(?:Init COMPLETE|Connected all (?:rings|trees))")


class NcclP2pHang(Hazard):
    log_words = STALL_WORDS

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Several processes on consumer GPUs of the RTX 40 series, according to Slurm or the environment."""
        if launch.launcher == "accelerate" or (whole_number(launch.processes_per_node) or 1) < 2:
            return  # accelerate turns peer-to-peer off by itself
        if not launch.variable("NCCL_P2P_DISABLE").absent or not launch.variable("NCCL_P2P_LEVEL").absent:
            return
        requested = launch.slurm.get("gres")
        gres = str(requested.get("")) if requested is not None else ""
        named = next((gpu.name for gpu in run.environment.gpus if _CONSUMER_GPU_PATTERN.search(gpu.name)), None)
        if named is None and _CONSUMER_GPU_PATTERN.search(gres) is None:
            return
        fixes: tuple[Fix, ...] = ()
        if launch.source.writable:
            title = translated("set NCCL_P2P_DISABLE=1")
            fixes = (self.fix(title, launch.setting_variable("NCCL_P2P_DISABLE", "1"), safe=False),)
        yield self.finding(
            self.texts["cause_in_launch"].format(count=whole_number(launch.processes_per_node), gpu=named or gres),
            title=translated("NCCL's peer-to-peer copies between these GPUs may hang"),
            severity=Severity.WARNING,
            spans=(launch.place.span(), requested.span() if requested is not None and named is None else None),
            fixes=fixes,
            confirm=translated("The run hangs with all GPUs at 100 %"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A stall at the first collective on consumer GPUs."""
        stall = find_stall(log)
        gpus = find_in_log_or_setup(log, _CONSUMER_GPU_IN_LOG)
        complete = log.find(_INIT_COMPLETE_PATTERN)
        talks = find_in_log_or_setup(log, _PEER_TO_PEER) if complete is not None else False
        if stall is None or not (gpus or talks) or _has_trained(log, stall):
            return
        sure = gpus and (first_step_line(log) is None or stall.is_early)
        yield self.log_finding(
            stall.evidence,
            certainty=stall.cap_certainty(Certainty.LIKELY) if sure else Certainty.POSSIBLE,
            extra_evidence=tuple(one for one in (gpus or talks, complete) if isinstance(one, LineMatch)),
            confirm=translated("The same command runs with NCCL_P2P_DISABLE=1"),
        )


def _has_trained(log: FailureLog, stall: Stall) -> bool:
    """Whether more than the first collectives had completed: a step is shown, or their sequence number is high."""
    passed = stall.first_sequence or 0
    return passed > 10 * MAX_EARLY_SEQUENCE_NUMBER or (
        first_step_line(log) is not None and passed > MAX_EARLY_SEQUENCE_NUMBER
    )
